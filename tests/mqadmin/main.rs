//! `mqadmin` through its program against clusters of ours: text, JSON, exit status, and what it says when something fails.

mod access;
mod brokers;
mod figures;
mod filters;
mod golden;
mod groups;
mod messages;
mod name_servers;
mod offline;
mod offsets;
mod overview;
mod support;
mod terminal;
mod topics;
mod transfer;
mod usage;
