//! Settings of brokers and name servers, at run time.

use std::collections::BTreeMap;

use minimq_protocol::Command;
use minimq_protocol::code::request;

use super::{Admin, lines, text};
use crate::error::Result;

impl Admin {
    /// A broker's settings as properties text (26).
    pub async fn broker_config(&self, addr: &str) -> Result<String> {
        let answer = self
            .call(addr, Command::request(request::GET_BROKER_CONFIG))
            .await?;
        text(addr, &answer)
    }

    /// Changes settings of a broker (25).
    pub async fn update_broker_config(
        &self,
        addr: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<()> {
        let request = Command::request(request::UPDATE_BROKER_CONFIG).with_body(lines(settings));
        self.call(addr, request).await.map(drop)
    }

    /// A name server's settings as properties text (319).
    pub async fn name_server_config(&self, addr: &str) -> Result<String> {
        let answer = self
            .call(addr, Command::request(request::GET_NAMESRV_CONFIG))
            .await?;
        text(addr, &answer)
    }

    /// Changes settings of a name server (318).
    pub async fn update_name_server_config(
        &self,
        addr: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<()> {
        let request = Command::request(request::UPDATE_NAMESRV_CONFIG).with_body(lines(settings));
        self.call(addr, request).await.map(drop)
    }
}
