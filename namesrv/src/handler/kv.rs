//! KV configuration: 100, 101, 102, 219, and by value 217, 218 (name server spec 9).

use minimq_protocol::code::response;
use minimq_protocol::header::{
    DeleteKVConfigRequest, GetKVConfigRequest, GetKVConfigResponse, GetKVListByNamespaceRequest,
    PutKVConfigRequest,
};
use minimq_protocol::{Command, HeaderError};

use super::{Answered, Refusal, State, done};

/// 3.x: the keys with a value. 5.x uses the code for something else.
pub(super) const GET_KV_CONFIG_BY_VALUE: i32 = 217;
/// 3.x: deletes the keys with a value.
pub(super) const DELETE_KV_CONFIG_BY_VALUE: i32 = 218;

/// Whether 217 and 218 are meant as 3.x did.
pub(super) fn is_by_value(request: &Command) -> bool {
    request.ext.get("namespace").is_some()
}

impl State {
    pub(super) fn put_kv(&self, request: &Command) -> Answered {
        let header: PutKVConfigRequest<'_> = request.header().map_err(|error| match error {
            HeaderError::Missing {
                field: "namespace" | "key",
            } => Refusal::error("namespace or key is null"),
            error => error.into(),
        })?;
        self.kv
            .put(header.namespace, header.key, header.value)
            .map_err(not_stored)?;
        tracing::info!(
            "KV configuration: {} {} set to {}",
            header.namespace,
            header.key,
            header.value
        );
        Ok(done(request))
    }

    pub(super) fn get_kv(&self, request: &Command) -> Answered {
        let header: GetKVConfigRequest<'_> = request.header()?;
        let value = self
            .kv
            .get(header.namespace, header.key)
            .ok_or_else(|| no_item(&header))?;
        Ok(with_value(request, &value))
    }

    pub(super) fn delete_kv(&self, request: &Command) -> Answered {
        let header: DeleteKVConfigRequest<'_> = request.header()?;
        self.kv
            .delete(header.namespace, header.key)
            .map_err(not_stored)?;
        tracing::info!(
            "KV configuration: {} {} deleted",
            header.namespace,
            header.key
        );
        Ok(done(request))
    }

    pub(super) fn list_kv(&self, request: &Command) -> Answered {
        let header: GetKVListByNamespaceRequest<'_> = request.header()?;
        let list = self.kv.list(header.namespace).ok_or_else(|| {
            Refusal::With(
                response::QUERY_NOT_FOUND,
                format!("No config item, Namespace: {}", header.namespace),
            )
        })?;
        Ok(done(request).with_body(list.to_wire()))
    }

    /// The field `key` carries the value.
    pub(super) fn get_kv_by_value(&self, request: &Command) -> Answered {
        let header: GetKVConfigRequest<'_> = request.header()?;
        let keys = self
            .kv
            .keys_with_value(header.namespace, header.key)
            .ok_or_else(|| no_item(&header))?;
        Ok(with_value(request, &keys))
    }

    /// The field `key` carries the value.
    pub(super) fn delete_kv_by_value(&self, request: &Command) -> Answered {
        let header: DeleteKVConfigRequest<'_> = request.header()?;
        self.kv
            .delete_value(header.namespace, header.key)
            .map_err(not_stored)?;
        tracing::info!(
            "KV configuration: keys with value {} in {} deleted",
            header.key,
            header.namespace
        );
        Ok(done(request))
    }
}

fn with_value(request: &Command, value: &str) -> Command {
    done(request).with_header(&GetKVConfigResponse { value: Some(value) })
}

fn no_item(header: &GetKVConfigRequest<'_>) -> Refusal {
    let (namespace, key) = (header.namespace, header.key);
    let remark = format!("No config item, Namespace: {namespace} Key: {key}");
    Refusal::With(response::QUERY_NOT_FOUND, remark)
}

fn not_stored(error: crate::kv_config::KvError) -> Refusal {
    tracing::error!("the KV configuration was not changed: {error}");
    Refusal::error(error)
}
