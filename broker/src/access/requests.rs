//! Changing accounts and white lists on request: codes 50, 51, 53; their version: 52 (broker spec 14.7). Secrets go in
//! and never out.

use std::sync::Arc;

use minimq_common::acl::{AccessControl, AccountUpdate, Secret};
use minimq_protocol::Command;
use minimq_protocol::body::{AclFileVersions, DataVersion};
use minimq_protocol::code::response;
use minimq_protocol::header::{
    CreateAccessConfigRequest, DeleteAccessConfigRequest, GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
};

use crate::broker::Broker;
use crate::request::{Handled, Refusal, success};

fn control(broker: &Broker, code: i32) -> Result<&Arc<AccessControl>, Refusal> {
    let off = || Refusal::new(code, "access control is off (aclEnable=false)");
    broker.access.as_ref().ok_or_else(off)
}

/// Items of a comma list, without blanks around them.
fn items(list: &str) -> Vec<String> {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Code 50.
pub fn update_account(broker: &Arc<Broker>, request: &Command) -> Handled {
    let code = response::UPDATE_AND_CREATE_ACL_CONFIG_FAILED;
    let header: CreateAccessConfigRequest<'_> = request.header()?;
    let own = |text: Option<&str>| text.map(str::to_owned);
    let update = AccountUpdate {
        access_key: header.access_key.to_owned(),
        secret_key: header.secret_key.map(|secret| Secret(secret.to_owned())),
        white_remote_address: own(header.white_remote_address),
        admin: header.admin,
        default_topic_perm: own(header.default_topic_perm),
        default_group_perm: own(header.default_group_perm),
        topic_perms: header.topic_perms.map(items),
        group_perms: header.group_perms.map(items),
    };
    control(broker, code)?
        .update_account(&update)
        .map_err(|error| Refusal::new(code, error.to_string()))?;
    tracing::info!(account = header.access_key, "account set");
    Ok(success(request))
}

/// Code 51.
pub fn delete_account(broker: &Arc<Broker>, request: &Command) -> Handled {
    let code = response::DELETE_ACL_CONFIG_FAILED;
    let header: DeleteAccessConfigRequest<'_> = request.header()?;
    let key = header.access_key;
    control(broker, code)?.delete_account(key).map_err(|error| {
        let remark = format!(
            "The accesskey[{key}] corresponding to accessConfig has been deleted failed. {error}"
        );
        Refusal::new(code, remark)
    })?;
    tracing::info!(account = key, "account deleted");
    Ok(success(request))
}

/// Code 53.
pub fn update_white_list(broker: &Arc<Broker>, request: &Command) -> Handled {
    let code = response::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED;
    let header: UpdateGlobalWhiteAddrsConfigRequest<'_> = request.header()?;
    let list = header.global_white_addrs;
    control(broker, code)?
        .update_white_list(&items(list), header.acl_file_full_path)
        .map_err(|error| {
            let remark =
                format!("The globalWhiteAddresses[{list}] has been updated failed. {error}");
            Refusal::new(code, remark)
        })?;
    tracing::info!(list, "global white list set");
    Ok(success(request))
}

/// Code 52.
pub fn info(broker: &Arc<Broker>, request: &Command) -> Handled {
    let versions = control(broker, response::SYSTEM_ERROR)?.versions();
    let version = |version: minimq_common::acl::FileVersion| DataVersion {
        counter: version.version.counter,
        timestamp: version.version.timestamp,
    };
    let first = versions.first().cloned().map(version).unwrap_or_default();
    let all = AclFileVersions(
        versions
            .into_iter()
            .map(|file| (file.path.display().to_string(), version(file)))
            .collect(),
    );
    let text = |json: Vec<u8>| String::from_utf8_lossy(&json).into_owned();
    let (first, all) = (text(first.to_wire()), text(all.to_wire()));
    let header = GetBrokerAclConfigResponse {
        version: &first,
        all_acl_file_version: Some(&all),
        broker_name: &broker.identity.name,
        broker_addr: &broker.identity.address,
        cluster_name: &broker.identity.cluster,
    };
    Ok(success(request).with_header(&header))
}
