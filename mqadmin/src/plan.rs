//! `--dry-run`: the requests that would have changed something.

use minimq_client::admin::PlannedRequest;
use minimq_protocol::code::request;
use serde_json::json;

use crate::report::Report;

/// Longest value shown.
const LONGEST: usize = 200;

/// What would have been sent, in place of a report that says it was done.
pub(crate) fn instead_of(report: Report, mut planned: Vec<PlannedRequest>) -> Report {
    // Servers asked at once were written down as they came.
    for same in planned.chunk_by_mut(|a, b| a.code == b.code) {
        same.sort_by(|a, b| a.addr.cmp(&b.addr));
    }
    if planned.is_empty() {
        // It changes nothing, or has shown by itself what it would do.
        return report;
    }
    let rows = planned.iter().map(|one| {
        vec![
            one.addr.clone(),
            one.code.to_string(),
            name(one.code).to_owned(),
            fields(one),
        ]
    });
    let json = planned.iter().map(|one| {
        let fields: serde_json::Map<String, serde_json::Value> = one
            .fields
            .iter()
            .map(|(key, value)| (key.clone(), shown(key, value).into()))
            .collect();
        json!({ "addr": one.addr, "code": one.code, "name": name(one.code), "fields": fields, "body": one.body })
    });
    Report::new(json!({ "dryRun": true, "requests": json.collect::<Vec<_>>() }))
        .line("Nothing was changed. These requests would be sent:")
        .table(
            &["#Addr", "#Code", "#Request", "#Fields"],
            rows.collect::<Vec<_>>(),
        )
}

fn name(code: i32) -> &'static str {
    request::name(code).unwrap_or("unknown")
}

fn fields(one: &PlannedRequest) -> String {
    let mut parts: Vec<String> = one
        .fields
        .iter()
        .map(|(key, value)| format!("{key}={}", shown(key, value)))
        .collect();
    if !one.body.is_empty() {
        let body: String = one.body.chars().take(LONGEST).collect();
        parts.push(body.trim_end().replace('\n', ", "));
    }
    parts.join(" ")
}

/// Secrets are not shown.
fn shown<'v>(key: &str, value: &'v str) -> &'v str {
    if key == "secretKey" { "***" } else { value }
}
