//! What becomes of an upload: each row of filter server spec 8, refusals that name the fault, expiry.

use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::crc::body_crc;

use crate::support::*;

fn fake() -> FakeBroker {
    FakeBroker::start(|pull| Some(answer(19, pull.queue_offset, Vec::new())))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_of_the_upload_table() {
    let broker = fake();
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    let (one, two) = (modulo(2, 0), modulo(2, 1));
    let hashes = || {
        server
            .figures()
            .filters
            .iter()
            .map(|f| (f.class_name.clone(), f.users))
            .collect::<Vec<_>>()
    };
    // No entry; CRC 0 counts too.
    assert_eq!(
        member.upload_as("A", 0, one.as_bytes()).await,
        (0, String::new())
    );
    assert_eq!(hashes(), [("A".to_owned(), 1)]);
    // The same again, with and without CRC.
    assert_eq!(
        member
            .upload_as("A", body_crc(one.as_bytes()), one.as_bytes())
            .await
            .0,
        0
    );
    assert_eq!(member.upload_as("A", 0, one.as_bytes()).await.0, 0);
    // CRC 0 never replaces.
    assert_eq!(member.upload_as("A", 0, two.as_bytes()).await.0, 0);
    assert_eq!(hashes(), [("A".to_owned(), 1)]);
    // Another CRC replaces, another name is another filter of the same module.
    assert_eq!(
        member
            .upload_as("B", body_crc(two.as_bytes()), two.as_bytes())
            .await
            .0,
        0
    );
    assert_eq!(hashes(), [("A".to_owned(), 0), ("B".to_owned(), 1)]);
    // A failed one replaces nothing.
    let (code, remark) = member
        .upload_as("B", body_crc(b"nonsense"), b"nonsense")
        .await;
    assert_eq!(code, 1);
    assert!(remark.contains("not a WebAssembly module"), "{remark}");
    assert!(
        remark.contains("ConsumerGroup: CG Topic: T ClassName: B"),
        "{remark}"
    );
    assert_eq!(member.pull(0).await.code, 19);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_is_wrong() {
    let broker = fake();
    let server = filter_server(&broker.addr(), &[]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    let good = module("i32.const 1");
    let head = "(memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\"))";
    for (body, expected) in [
        (String::new(), "the body is empty"),
        (format!("(module {head})"), "must export \"filter\""),
        (
            format!("(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)) {head})"),
            "import wasi_snapshot_preview1.fd_write is not allowed",
        ),
        ("(module (func".to_owned(), "the text form does not parse"),
        (format!("{good} )"), "the text form does not parse"),
    ] {
        let (code, remark) = member.upload(&body).await;
        assert_eq!(code, 1, "{body}");
        assert!(remark.contains(expected), "{remark}");
        assert!(remark.chars().count() <= 500);
    }
    let (code, remark) = member.upload_as("A", 77, good.as_bytes()).await;
    assert_eq!(
        (
            code,
            remark.contains("classCRC is 77, but that of the body is")
        ),
        (1, true),
        "{remark}"
    );
    assert_eq!(member.upload_as("", 0, good.as_bytes()).await.0, 1);
    assert_eq!(
        member
            .upload_as(&"x".repeat(256), 0, good.as_bytes())
            .await
            .0,
        1
    );
    let fieldless =
        Command::request(request::REGISTER_MESSAGE_FILTER_CLASS).with_body(good.clone());
    assert!(
        member
            .call(fieldless)
            .await
            .remark()
            .contains("consumerGroup is missing")
    );
    // A pull tells why there is no filter.
    assert_eq!(member.upload("nonsense").await.0, 1);
    let pulled = member.pull(0).await;
    assert!(
        pulled
            .remark
            .contains("the upload was refused: not a WebAssembly module"),
        "{}",
        pulled.remark
    );
    // Other codes are answered, and serve nothing.
    assert_eq!(member.call(Command::request(10)).await.code, 3);
    member.uploaded(good).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_three_forms_of_a_module_are_taken() {
    let broker = fake();
    let server = filter_server(&broker.addr(), &[]).await;
    let binary = wat::parse_str(SEQUENCE_ID).unwrap();
    for (n, body) in [
        SEQUENCE_ID.as_bytes().to_vec(),
        base64(&binary).into_bytes(),
        binary,
    ]
    .into_iter()
    .enumerate()
    {
        let member = Member::new(server.local_addr(), &format!("CG{n}"), "T");
        member.uploaded(&body).await;
        assert_eq!(member.pull(0).await.code, 19);
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |chunk: &[u8]| {
        let word = chunk
            .iter()
            .fold(0u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        let digit = |n: usize| char::from(ALPHABET[(word >> (18 - 6 * n) & 63) as usize]);
        (0..4)
            .map(|n| if n <= chunk.len() { digit(n) } else { '=' })
            .collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_module_of_many_groups_is_uploaded_at_once_and_compiled_once() {
    let broker = fake();
    let server = filter_server(&broker.addr(), &[]).await;
    // Some ten thousand instructions: long enough to be uploaded while it is being compiled.
    let text = module(&format!(
        "{} i32.const 1",
        "(drop (i32.mul (i32.const 3) (i32.const 5)))".repeat(5000)
    ));
    let mut uploads = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (member, text) = (
            Member::new(server.local_addr(), &format!("CG{n}"), "T"),
            text.clone(),
        );
        uploads.spawn(async move { member.upload(text).await });
    }
    while let Some(done) = uploads.join_next().await {
        assert_eq!(done.unwrap(), (0, String::new()));
    }
    assert_eq!(server.figures().filters.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_filters_are_forgotten_and_used_ones_are_not() {
    let broker = fake();
    let server = filter_server(&broker.addr(), &["filterExpiry=400"]).await;
    let (used, unused) = (
        Member::new(server.local_addr(), "A", "T"),
        Member::new(server.local_addr(), "B", "T"),
    );
    used.uploaded(SEQUENCE_ID).await;
    unused.uploaded(modulo(2, 0)).await;
    until_some("one is forgotten", || async {
        assert_eq!(used.pull(0).await.code, 19);
        (server.figures().filters.len() == 1).then_some(())
    })
    .await;
    assert_eq!(server.figures().filters[0].consumer_group, "A");
    assert!(unused.pull(0).await.remark.contains("not registered"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_filters_is_bounded() {
    let broker = fake();
    let server = filter_server(&broker.addr(), &["maxFilters=2"]).await;
    for n in 0..2 {
        Member::new(server.local_addr(), &format!("CG{n}"), "T")
            .uploaded(SEQUENCE_ID)
            .await;
    }
    let (code, remark) = Member::new(server.local_addr(), "CG2", "T")
        .upload(SEQUENCE_ID)
        .await;
    assert_eq!(
        (code, remark.contains("2 filters are in use")),
        (1, true),
        "{remark}"
    );
}
