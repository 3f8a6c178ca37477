//! What a command works with: the values of its options, the cluster, and where output goes.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::ArgMatches;
use futures_util::stream::{self, StreamExt};
use minimq_client::{Admin, Client, Error};
use minimq_protocol::body::ClusterInfo;

use crate::failure::Failure;
use crate::report::{Form, Report};

/// Servers asked at once.
const PARALLEL: usize = 16;
/// More than that is nobody's wish.
const MAX_PARALLEL: usize = 1024;

/// What a command works with.
pub(crate) struct Given {
    pub(crate) admin: Admin,
    pub(crate) client: Client,
    pub(crate) form: Form,
    pub(crate) dry_run: bool,
    parallel: usize,
    matches: ArgMatches,
}

/// One broker, by its place in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) cluster: String,
    pub(crate) broker: String,
    pub(crate) id: i64,
    pub(crate) addr: String,
}

impl Given {
    pub(crate) fn new(
        client: Client,
        admin: Admin,
        form: Form,
        matches: ArgMatches,
    ) -> Result<Self, Failure> {
        let mut given = Self {
            admin,
            client,
            form,
            dry_run: matches.get_flag("dry-run"),
            parallel: PARALLEL,
            matches,
        };
        if given.optional("parallel").is_some() {
            given.parallel = given.number_in("parallel", 1..=MAX_PARALLEL)?;
        }
        Ok(given)
    }

    /// An option's value, trimmed; empty counts as not given.
    pub(crate) fn optional(&self, long: &str) -> Option<&str> {
        let value = self.matches.try_get_one::<String>(long).ok().flatten()?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    /// As given, blanks and all.
    pub(crate) fn verbatim(&self, long: &str) -> Option<&str> {
        let value = self.matches.try_get_one::<String>(long).ok().flatten()?;
        Some(value)
    }

    /// Whether it stands on the command line, default or not.
    pub(crate) fn was_given(&self, long: &str) -> bool {
        self.matches.value_source(long) == Some(clap::parser::ValueSource::CommandLine)
    }

    /// The value of a required option, or of one with a default.
    pub(crate) fn text(&self, long: &str) -> Result<&str, Failure> {
        self.optional(long)
            .ok_or_else(|| Failure::Usage(format!("--{long} must not be empty")))
    }

    /// Words that belong to no option, as they are.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        let words = self.matches.get_many::<String>("surplus");
        words.into_iter().flatten().map(String::as_str)
    }

    pub(crate) fn flag(&self, long: &str) -> bool {
        self.matches.get_flag(long)
    }

    pub(crate) fn number<T: FromStr>(&self, long: &str) -> Result<T, Failure> {
        let text = self.text(long)?;
        text.parse().map_err(|_| {
            Failure::Usage(format!("--{long} is \"{text}\", it must be a whole number"))
        })
    }

    pub(crate) fn optional_number<T: FromStr>(&self, long: &str) -> Result<Option<T>, Failure> {
        self.optional(long).map(|_| self.number(long)).transpose()
    }

    pub(crate) fn number_in<T: FromStr + PartialOrd + std::fmt::Display>(
        &self,
        long: &str,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T, Failure> {
        let number = self.number(long)?;
        if range.contains(&number) {
            return Ok(number);
        }
        Err(Failure::Usage(format!(
            "--{long} is {number}, it must be from {} to {}",
            range.start(),
            range.end()
        )))
    }

    pub(crate) fn boolean(&self, long: &str) -> Result<bool, Failure> {
        let text = self.text(long)?;
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Failure::Usage(format!(
                "--{long} is \"{text}\", it must be true or false"
            ))),
        }
    }

    /// A time option in milliseconds; `now` is −1.
    pub(crate) fn time(&self, long: &str) -> Result<Option<i64>, Failure> {
        self.optional(long)
            .map(|text| crate::text::parse_time(text).map_err(Failure::Usage))
            .transpose()
    }

    /// Prints now what would else be the end's report: for commands that go on. One JSON document a line.
    pub(crate) fn show(&self, report: &Report) -> Result<(), Failure> {
        crate::report::print(&report.to_string_in(self.form, true))
    }

    /// Asks many at once, as many as `--parallel` says; the answers are in the order of `items`.
    pub(crate) async fn all<'i, I, T, F>(&self, items: &'i [I], ask: impl Fn(&'i I) -> F) -> Vec<T>
    where
        F: Future<Output = T>,
    {
        stream::iter(items)
            .map(ask)
            .buffered(self.parallel)
            .collect()
            .await
    }

    /// Does the same at many servers at once. What some did not do is told at the end of the report (status 4); if none did
    /// it, that is the failure.
    pub(crate) async fn each<'i, T, F>(
        &self,
        addrs: &'i [String],
        act: impl Fn(&'i str) -> F,
    ) -> Result<(Vec<(&'i str, T)>, Vec<String>), Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let answers = self.all(addrs, |addr| act(addr)).await;
        let (mut done, mut missing, mut first) = (Vec::new(), Vec::new(), None);
        for (addr, answer) in addrs.iter().zip(answers) {
            match answer {
                Ok(answer) => done.push((addr.as_str(), answer)),
                Err(error) => {
                    let failure = Failure::from(error);
                    missing.push(failure.describe_at(addr));
                    first.get_or_insert(failure);
                }
            }
        }
        match first {
            Some(failure) if done.is_empty() => Err(failure),
            _ => Ok((done, missing)),
        }
    }

    /// All brokers, sorted, of one cluster or of all; an unknown cluster is a failure.
    pub(crate) async fn places(&self, cluster: Option<&str>) -> Result<Vec<Place>, Failure> {
        let info = self.admin.cluster_info().await?;
        places(&info, cluster)
    }

    /// The brokers meant by `-b` (a name or an address) or `-c` (a cluster): the masters.
    pub(crate) async fn brokers(&self) -> Result<Vec<String>, Failure> {
        self.chosen(false).await
    }

    /// The same with the slaves.
    pub(crate) async fn brokers_and_slaves(&self) -> Result<Vec<String>, Failure> {
        self.chosen(true).await
    }

    async fn chosen(&self, slaves: bool) -> Result<Vec<String>, Failure> {
        let cluster = self
            .optional("clusterName")
            .or_else(|| self.optional("cluster"));
        match (self.optional("brokerAddr"), cluster) {
            (Some(broker), _) => Ok(vec![self.broker_addr(broker).await?]),
            (None, Some(cluster)) => {
                let places = self.places(Some(cluster)).await?;
                let chosen: Vec<String> = places
                    .into_iter()
                    .filter(|place| slaves || place.id == 0)
                    .map(|place| place.addr)
                    .collect();
                if chosen.is_empty() {
                    return Err(Failure::NotFound(format!("cluster {cluster} has no master")));
                }
                Ok(chosen)
            }
            (None, None) => Err(Failure::Usage(
                "give a broker with -b host:port, or a cluster with -c NAME (a broker's name will do too; mqadmin clusterList shows them)".to_owned(),
            )),
        }
    }

    /// The address of a broker given by address or name; a name means its master.
    pub(crate) async fn broker_addr(&self, broker: &str) -> Result<String, Failure> {
        if broker.contains(':') {
            return Ok(broker.to_owned());
        }
        let info = self.admin.cluster_info().await?;
        let found = info
            .broker_addr_table
            .get(broker)
            .and_then(|data| data.broker_addrs.values().next().cloned());
        found.ok_or_else(|| {
            let known: Vec<&str> = info.broker_addr_table.keys().map(String::as_str).collect();
            Failure::NotFound(format!(
                "no broker {broker}; known: {} (an address is host:port)",
                known.join(", ")
            ))
        })
    }
}

/// Brokers of one cluster or of all.
pub(crate) fn places(info: &ClusterInfo, cluster: Option<&str>) -> Result<Vec<Place>, Failure> {
    if let Some(cluster) = cluster
        && !info.cluster_addr_table.contains_key(cluster)
    {
        let known: Vec<&str> = info.cluster_addr_table.keys().map(String::as_str).collect();
        return Err(Failure::NotFound(format!(
            "[error] Make sure the specified clusterName exists or the name server connected to is correct: no cluster {cluster}; known: {}",
            known.join(", ")
        )));
    }
    let wanted = info
        .cluster_addr_table
        .iter()
        .filter(|(name, _)| cluster.is_none_or(|wanted| wanted == *name));
    let mut places = Vec::new();
    for (cluster, names) in wanted {
        for name in names {
            let addresses: Option<&BTreeMap<i64, String>> = info
                .broker_addr_table
                .get(name)
                .map(|data| &data.broker_addrs);
            places.extend(addresses.into_iter().flatten().map(|(id, addr)| Place {
                cluster: cluster.clone(),
                broker: name.clone(),
                id: *id,
                addr: addr.clone(),
            }));
        }
    }
    places.sort();
    places.dedup();
    Ok(places)
}
