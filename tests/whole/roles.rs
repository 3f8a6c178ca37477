//! Restarts, deaths, moves and outages of each role under traffic: nothing is lost, and nobody has to do anything.

use std::time::Duration;

use super::processes::{Cluster, End, Role};
use super::traffic::Traffic;

/// Seconds of what the long form of a test takes a minute or half of one for.
fn soak() -> Duration {
    soak_or(10)
}

/// As long as `MINIMQ_SOAK_S` says, or so many seconds.
pub(crate) fn soak_or(seconds: u64) -> Duration {
    let given = std::env::var("MINIMQ_SOAK_S").ok();
    let given = given.map(|text| text.parse().expect("MINIMQ_SOAK_S: seconds"));
    Duration::from_secs(given.unwrap_or(seconds))
}

#[tokio::test(flavor = "multi_thread")]
async fn mixed_traffic_keeps_every_promise() {
    let cluster = Cluster::start(2);
    let traffic = Traffic::start(&cluster).await;
    traffic.flows().await;
    tokio::time::sleep(soak()).await;
    traffic.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_stops_and_dies_in_turn_and_comes_back() {
    let mut cluster = Cluster::start(1);
    let traffic = Traffic::start(&cluster).await;
    traffic.flows().await;
    for how in [End::Stopped, End::Killed] {
        let roles: [fn(&mut Cluster) -> &mut Role; 3] = [
            |cluster| &mut cluster.name_server,
            |cluster| &mut cluster.filter_servers[0],
            |cluster| &mut cluster.brokers[0],
        ];
        for role in roles {
            let role = role(&mut cluster);
            role.end(how);
            role.start();
            traffic.flows().await;
        }
    }
    traffic.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_goes_on_while_the_name_server_is_gone() {
    let mut cluster = Cluster::start(1);
    let traffic = Traffic::start(&cluster).await;
    traffic.flows().await;
    cluster.name_server.end(End::Killed);
    tokio::time::sleep(soak()).await;
    traffic.flows().await;
    cluster.name_server.start();
    traffic.flows().await;
    traffic.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_comes_back_at_another_address_is_found() {
    let mut cluster = Cluster::start(1);
    let traffic = Traffic::start(&cluster).await;
    traffic.flows().await;
    // The filter server was told its broker's address, so it has to be started anew as well.
    cluster.filter_servers[0].end(End::Stopped);
    cluster.brokers[0].end(End::Stopped);
    cluster.brokers[0].start_elsewhere();
    cluster.start_filter_server();
    traffic.flows().await;
    traffic.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_brokers_one_dies_and_the_other_takes_the_traffic() {
    let mut cluster = Cluster::start(2);
    let traffic = Traffic::start(&cluster).await;
    traffic.flows().await;
    cluster.brokers[1].end(End::Killed);
    traffic.flows().await;
    cluster.brokers[1].start();
    traffic.flows().await;
    traffic.end().await;
}
