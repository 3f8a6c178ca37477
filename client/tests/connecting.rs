//! How clients come to their cluster: accounts, TLS, header encodings, namespaces, name servers from an endpoint.

mod support;

use std::sync::Arc;
use std::time::Duration;

use minimq_client::{Client, ClientTls, Credentials, Delivery, Message, SerializeType};
use parking_lot::Mutex;
use support::applications::{reading, writing};
use support::{Cluster, Seen, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn signed_requests_are_served_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let accounts = dir.path().join("plain_acl.yml");
    let text = "accounts:\n  - accessKey: reader-account\n    secretKey: readersecret\n    defaultTopicPerm: PUB|SUB\n    defaultGroupPerm: SUB\n  - accessKey: admin-account\n    secretKey: adminsecret12\n    admin: true\n";
    std::fs::write(&accounts, text).unwrap();
    let settings = [
        ("aclEnable", "true"),
        ("aclFile", accounts.to_str().unwrap()),
    ];
    let cluster = Cluster::start_with(&settings).await;
    let as_user = async |user: &str, secret: &str| {
        let account = Credentials::new(user, secret);
        let builder = cluster.client_builder().credentials(account);
        builder.build().await.unwrap()
    };
    let client = as_user("reader-account", "readersecret").await;
    let producer = client.producer("signed-producer").build().await.unwrap();
    producer
        .send(Message::new("signed", "hello").key("k"))
        .await
        .unwrap();
    let seen = Seen::default();
    let consumer = reading(&client, "signed-consumer", "signed")
        .run(writing(&seen))
        .await
        .unwrap();
    eventually("it comes", async || seen.count("hello") == 1).await;
    consumer.shutdown().await;
    for wrong in [
        as_user("reader-account", "anothersecret").await,
        as_user("nobody", "readersecret").await,
        cluster.client().await,
    ] {
        let producer = wrong.producer("wrong").retries(0).build().await.unwrap();
        let error = producer.send(Message::new("signed", "x")).await;
        let error = error.unwrap_err();
        assert_eq!(error.code(), Some(1), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_over_tls_and_in_both_header_encodings() {
    let settings = [("tls.server.mode", "enforcing")];
    let cluster = Cluster::start_with(&settings).await;
    let plain = cluster.client().await;
    let refused = plain.producer("plain").timeout(Duration::from_millis(500));
    let refused = refused.build().await.unwrap();
    assert!(refused.send(Message::new("secret", "x")).await.is_err());
    for (encoding, group) in [
        (SerializeType::Json, "json"),
        (SerializeType::Rocketmq, "binary"),
    ] {
        let tls = ClientTls {
            enable: true,
            ..ClientTls::default()
        };
        let client = cluster.client_builder().tls(tls).header_encoding(encoding);
        let client = client.build().await.unwrap();
        let producer = client.producer("tls-producer").build().await.unwrap();
        let topic = format!("secret-{group}");
        producer.send(Message::new(&topic, "hidden")).await.unwrap();
        let seen = Seen::default();
        let consumer = reading(&client, group, &topic)
            .run(writing(&seen))
            .await
            .unwrap();
        eventually("it comes", async || seen.count("hidden") == 1).await;
        consumer.shutdown().await;
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_answer_a_connection_is_given_up_after_the_time_set() {
    // Nobody takes connections off its list: further ones get no answer at all.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(1).unwrap();
    let addr = full.local_addr().unwrap();
    let mut waiting = Vec::new();
    loop {
        let connecting = tokio::net::TcpStream::connect(addr);
        match tokio::time::timeout(Duration::from_millis(300), connecting).await {
            Ok(connected) => waiting.push(connected.unwrap()),
            Err(_) => break,
        }
    }
    let client = Client::builder()
        .name_servers(addr.to_string())
        .connect_timeout(Duration::from_millis(100))
        .request_timeout(Duration::from_secs(600));
    let error = client.build().await.unwrap().route("any").await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("100 ms"), "{error}");
    assert!(error.is_retryable() && error.never_sent());
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_keep_applications_apart() {
    let cluster = Cluster::start().await;
    let in_namespace = async |namespace: &str| {
        let builder = cluster.client_builder().namespace(namespace);
        builder.build().await.unwrap()
    };
    let mut ends = Vec::new();
    for name in ["blue", "red"] {
        let client = in_namespace(name).await;
        let producer = client.producer("spaces-producer").build().await.unwrap();
        let receipt = producer
            .send(Message::new("spaces", format!("for {name}")))
            .await
            .unwrap();
        assert_eq!(receipt.queue.topic, "spaces");
        let seen = Seen::default();
        let topics: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, written) = (topics.clone(), seen.clone());
        let consumer = reading(&client, "spaces-consumer", "spaces")
            .run(move |message: Delivery| {
                log.lock().push(message.topic().to_owned());
                written.add(&message);
                async {}
            })
            .await
            .unwrap();
        ends.push((name, seen, topics, consumer, client));
    }
    for (name, seen, topics, consumer, _) in ends {
        eventually("each gets its own", async || seen.len() == 1).await;
        assert_eq!(seen.bodies(), [format!("for {name}")]);
        assert_eq!(*topics.lock(), ["spaces"]);
        consumer.shutdown().await;
    }
    let admin = cluster.client().await.admin();
    assert!(admin.topic_route("blue%spaces").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn name_servers_come_from_an_endpoint() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/rocketmq/nsaddr", listener.local_addr().unwrap());
    let answer = format!("HTTP/1.1 200 OK\r\n\r\n{}\n", cluster.name_server_addr());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 1024];
        let read = stream.read(&mut request).await.unwrap();
        assert!(request[..read].starts_with(b"GET /rocketmq/nsaddr HTTP/1."));
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let client = Client::builder().name_server_endpoint(url).build().await;
    let client = client.unwrap();
    serving.await.unwrap();
    assert_eq!(client.name_servers(), [cluster.name_server_addr()]);
    let producer = client.producer("endpoint").build().await.unwrap();
    producer.send(Message::new("endpoint", "x")).await.unwrap();
}
