//! Watching over all consumer groups: what is told when a group falls behind, stands still or disagrees with itself.

use std::time::Duration;

use minimq_client::Error;
use serde_json::json;

use super::progress::{GroupProgress, all_groups};
use crate::command::{CommandSpec, Kind, Outcome, long};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::{Colour, Report};
use crate::text;

/// Longest pause between two rounds, s.
const MAX_INTERVAL_S: u64 = 86_400;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "startMonitoring",
    about: "Start Monitoring",
    example: "startMonitoring --interval 60 --behind 10000",
    options: &[
        long("interval", Kind::Default("60"), "Seconds between rounds"),
        long("times", Kind::Optional, "So many rounds, then end"),
        long(
            "behind",
            Kind::Default("100000"),
            "Messages from which a group counts as behind",
        ),
    ],
    danger: None,
    run: |given| Box::pin(watch(given)),
}];

/// What is wrong with a group, and in which words it is told.
fn complaints(group: &GroupProgress, behind: i64) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if group.diff >= behind {
        found.push((
            "behind",
            format!("group {} is {} messages behind", group.group, group.diff),
        ));
    }
    if group.clients.is_empty() && group.diff > 0 {
        found.push((
            "no consumer",
            format!(
                "group {} has no member connected and {} messages wait",
                group.group, group.diff
            ),
        ));
    }
    if !group.clients.is_empty() && group.diff > 0 && group.tps == 0.0 {
        found.push((
            "standing still",
            format!(
                "group {} has {} members connected, {} messages wait and none is consumed",
                group.group,
                group.clients.len(),
                group.diff
            ),
        ));
    }
    found
}

async fn round(given: &Given, behind: i64) -> Result<(), Failure> {
    let (groups, missing) = all_groups(given).await?;
    let mut found: Vec<(String, &'static str, String)> = Vec::new();
    for group in &groups {
        let own = complaints(group, behind);
        found.extend(
            own.into_iter()
                .map(|(kind, text)| (group.group.clone(), kind, text)),
        );
    }
    let masters: Vec<String> = given
        .places(None)
        .await?
        .into_iter()
        .filter(|place| place.id == 0)
        .map(|place| place.addr)
        .collect();
    let mixed = given
        .all(&masters, |addr| given.admin.mixed_subscriptions(addr))
        .await;
    for answer in mixed.into_iter().filter_map(Result::<_, Error>::ok) {
        for (group, members) in answer.groups {
            let ids: Vec<String> = members.into_iter().map(|member| member.client_id).collect();
            let text = format!(
                "members of group {group} subscribe otherwise than it: {}",
                ids.join(", ")
            );
            found.push((group, "mixed subscriptions", text));
        }
    }
    let now = text::now_ms();
    for (group, kind, text) in found {
        let report =
            Report::new(json!({ "time": now, "group": group, "kind": kind, "text": text }))
                .painted(
                    Colour::Yellow,
                    format!("{} [MONITOR] {text}", text::time_or_na(now)),
                );
        given.show(&report)?;
    }
    let summary = json!({ "time": now, "kind": "round", "groups": groups.len() });
    let line = format!(
        "{} [MONITOR] {} groups looked at",
        text::time_or_na(now),
        groups.len()
    );
    given.show(&Report::new(summary).line(line))?;
    for what in missing {
        eprintln!("mqadmin startMonitoring: {what}");
    }
    Ok(())
}

async fn watch(given: &Given) -> Outcome {
    let behind = given.number_in("behind", 1..=i64::MAX)?;
    let interval = Duration::from_secs(given.number_in("interval", 1..=MAX_INTERVAL_S)?);
    let times: Option<u64> = given.optional_number("times")?;
    // The first round must work; later ones may fail while servers are away.
    round(given, behind).await?;
    let mut done = 1;
    while times.is_none_or(|times| done < times) {
        tokio::time::sleep(interval).await;
        match round(given, behind).await {
            Err(gone @ Failure::ReaderGone) => return Err(gone),
            Err(failure) => eprintln!("mqadmin startMonitoring: {}", failure.describe()),
            Ok(()) => {}
        }
        done += 1;
    }
    Ok(Report::shown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_told_of_for_each_thing_that_is_wrong() {
        let kinds = |group: &GroupProgress| -> Vec<&str> {
            complaints(group, 100)
                .iter()
                .map(|(kind, _)| *kind)
                .collect()
        };
        let mut group = GroupProgress {
            group: "g".to_owned(),
            ..GroupProgress::default()
        };
        assert!(kinds(&group).is_empty());
        group.diff = 99;
        assert_eq!(kinds(&group), ["no consumer"]);
        group.diff = 100;
        group.clients.insert("c".to_owned());
        assert_eq!(kinds(&group), ["behind", "standing still"]);
        group.tps = 1.0;
        assert_eq!(kinds(&group), ["behind"]);
    }
}
