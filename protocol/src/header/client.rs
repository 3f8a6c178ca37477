//! Clients and transactions, as a broker serves them: codes 35, 37, 38, 323 (wire spec 4.4, 4.5).

use super::header;

header! {
    /// Code 35. C++ sends empty texts for groups it does not mean.
    pub struct UnregisterClientRequest<'a> {
        /// Client id.
        client_id: &'a str = b"clientID",
        /// Producer group left.
        producer_group: Option<&'a str> = b"producerGroup",
        /// Consumer group left.
        consumer_group: Option<&'a str> = b"consumerGroup",
    }

    /// Code 38.
    pub struct GetConsumerListByGroupRequest<'a> {
        /// Consumer group.
        consumer_group: &'a str = b"consumerGroup",
    }

    /// Code 37; the command's remark is the reason.
    pub struct EndTransactionRequest<'a> {
        /// Producer group.
        producer_group: &'a str = b"producerGroup",
        /// Queue offset of the half message.
        tran_state_table_offset: i64 = b"tranStateTableOffset",
        /// Commit-log offset of the half message.
        commit_log_offset: i64 = b"commitLogOffset",
        /// [`TRANSACTION_UNKNOWN`], [`TRANSACTION_COMMIT`] or [`TRANSACTION_ROLLBACK`].
        commit_or_rollback: i32 = b"commitOrRollback",
        /// Whether it answers a check (code 39).
        from_transaction_check: bool = b"fromTransactionCheck" or false,
        /// Unique id the client gave the message.
        msg_id: &'a str = b"msgId",
        /// Transaction id.
        transaction_id: Option<&'a str> = b"transactionId",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// Code 323.
    pub struct ResumeCheckHalfMessageRequest<'a> {
        /// Offset id of a message given up (topic `TRANS_CHECK_MAX_TIME_TOPIC`).
        msg_id: Option<&'a str> = b"msgId",
    }
}

/// `commitOrRollback`: not decided; such a request is not answered.
pub const TRANSACTION_UNKNOWN: i32 = 0;
/// `commitOrRollback`: deliver it.
pub const TRANSACTION_COMMIT: i32 = 8;
/// `commitOrRollback`: forget it.
pub const TRANSACTION_ROLLBACK: i32 = 12;
