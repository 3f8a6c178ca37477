//! Authentication of requests that change something, if it is switched on (`aclEnable`): they must be signed by an
//! admin account, or, for registrations, by one of `brokerAccessKeys`.

use minimq_common::acl::{AclError, AclSettings, Need, Request};
use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_remoting::Connection;

use super::{Refusal, State, kv};
use crate::config::NamesrvConfig;

/// Codes that change routes, KV configuration or settings. 322 is a sign of life.
const CHANGING: &[i32] = &[
    request::PUT_KV_CONFIG,
    request::DELETE_KV_CONFIG,
    request::REGISTER_BROKER,
    request::UNREGISTER_BROKER,
    request::WIPE_WRITE_PERM_OF_BROKER,
    request::DELETE_TOPIC_IN_NAMESRV,
    kv::DELETE_KV_CONFIG_BY_VALUE,
    request::UPDATE_NAMESRV_CONFIG,
    request::QUERY_DATA_VERSION,
    request::ADD_WRITE_PERM_OF_BROKER,
];

/// What a broker does.
const OF_BROKERS: [i32; 3] = [
    request::REGISTER_BROKER,
    request::UNREGISTER_BROKER,
    request::QUERY_DATA_VERSION,
];

/// How accounts are read and what they may do.
pub(crate) fn settings(config: &NamesrvConfig) -> AclSettings {
    let grants = config
        .broker_accounts()
        .flat_map(|key| OF_BROKERS.map(|code| (code, key.to_owned())))
        .collect();
    AclSettings {
        default_file: config.acl_file.clone(),
        folder: None,
        admin_codes: CHANGING.to_vec(),
        grants,
    }
}

impl State {
    pub(super) fn check_access(
        &self,
        request: &Command,
        connection: &Connection,
    ) -> Result<(), Refusal> {
        let Some(access) = &self.access else {
            return Ok(());
        };
        if !CHANGING.contains(&request.code) {
            return Ok(());
        }
        let checked = Request {
            code: request.code,
            fields: || request.ext.iter(),
            body: &request.body,
            peer: connection.peer().ip(),
        };
        let needs: [Need<'_>; 0] = [];
        match access.check(&checked, needs) {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(peer = %connection.peer(), code = request.code, %error, "request refused");
                Err(Refusal::With(AclError::CODE, error.remark()))
            }
        }
    }
}
