//! Reading files, taking changes over, changing them by request.

use super::*;

#[test]
fn files_that_are_wrong_are_refused_by_path_account_and_field_without_the_secret() {
    let account = |rest: &str| {
        format!("accounts:\n- accessKey: exampleUser\n  secretKey: s3cr3t-s3cr3t\n{rest}")
    };
    for (text, message) in [
        (
            "accounts:\n- accessKey: short6\n  secretKey: s3cr3t-s3cr3t".to_owned(),
            "account `short6`: accessKey must be longer than 6 characters",
        ),
        (
            "accounts:\n- accessKey: exampleUser\n  secretKey: s3cr3t".to_owned(),
            "account `exampleUser`: secretKey must be longer than 6 characters",
        ),
        (
            "accounts:\n- accessKey: exampleUser".to_owned(),
            "account `exampleUser`: secretKey must be longer",
        ),
        (
            "accounts:\n- secretKey: s3cr3t-s3cr3t".to_owned(),
            "account ``: accessKey must be longer",
        ),
        (
            account("  topicPerms: [orders]"),
            "account `exampleUser`: topicPerms: `orders` is wrong: expected name=perm",
        ),
        (
            account("  groupPerms: ['=PUB']"),
            "groupPerms: `=PUB` is wrong",
        ),
        (
            account("  whiteRemoteAddress: 300.1.1.1"),
            "account `exampleUser`: whiteRemoteAddress: `300.1.1.1` is no address",
        ),
        (
            "globalWhiteRemoteAddresses: [abc]".to_owned(),
            "globalWhiteRemoteAddresses: `abc` is no address",
        ),
        ("accounts: 5".to_owned(), "expected a sequence"),
        (account("  topicPerms: {a: b}"), "expected a sequence"),
        ("accounts: [".to_owned(), "line 2"),
        ("\t: x".to_owned(), "cannot start any token"),
    ] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("plain_acl.yml");
        fs::write(&path, &text).unwrap();
        let error = open_in(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(message) && error.starts_with(&path.display().to_string()),
            "{text}\n{error}"
        );
        assert!(!error.contains("s3cr3t"), "{error}");
    }
}

#[test]
fn unusual_spellings_of_values_are_read() {
    let acl = acl(
        "globalWhiteRemoteAddresses:\naccounts:\n- accessKey: 0012345678\n  secretKey: 1e100000\n  admin: 'True'\n\
         - accessKey: \"quoted key\"\n  secretKey: ~secret~\n  admin: yes\n  topicPerms:\n  groupPerms: []\n  \
         defaultTopicPerm: PUBB\n  unknownField: {a: 1}\n",
    );
    assert_eq!(acl.ask("0012345678", "1e100000", 17, &[]), Ok(Pass::Signed));
    let refused = Err(AclError::NoTopicPermission("t".into()));
    assert_eq!(
        acl.ask("quoted key", "~secret~", 10, &[("topic", "t")]),
        refused,
        "an unknown permission denies"
    );
}

#[test]
fn a_missing_file_is_created_empty_private_and_lets_nobody_in() {
    let folder = tempdir().unwrap();
    let control = open_in(folder.path()).unwrap();
    assert!(control.is_empty());
    use std::os::unix::fs::MetadataExt;
    assert_eq!(
        fs::metadata(folder.path().join("plain_acl.yml"))
            .unwrap()
            .mode()
            & 0o777,
        0o600
    );
    assert!(!acl(FILE).control.is_empty());
    assert_eq!(
        control.versions()[0].version,
        DataVersion {
            timestamp: 5000,
            counter: 0
        }
    );
}

#[test]
fn the_first_file_with_a_key_counts_and_white_lists_join() {
    let folder = tempdir().unwrap();
    let more = folder.path().join("acl").join("deeper");
    fs::create_dir_all(&more).unwrap();
    fs::write(folder.path().join("plain_acl.yml"), FILE).unwrap();
    fs::write(
        more.join("a.yaml"),
        "globalWhiteRemoteAddresses: ['::9']\naccounts:\n- {accessKey: exampleUser, secretKey: otherSecret}\n- {accessKey: secondUser, secretKey: secondSecret, defaultTopicPerm: PUB}",
    )
    .unwrap();
    fs::write(more.join("a.txt"), "no yaml: [").unwrap();
    let acl = Acl {
        control: open_in(folder.path()).unwrap(),
        folder,
    };
    assert_eq!(acl.user(10, &[("topic", "TPUB")]), Ok(Pass::Signed));
    assert_eq!(
        acl.ask("secondUser", "secondSecret", 10, &[("topic", "x")]),
        Ok(Pass::Signed)
    );
    assert_eq!(acl.send("::9", 10, &[], b""), Ok(Pass::GlobalWhiteList));
    let paths: Vec<PathBuf> = acl
        .control
        .versions()
        .into_iter()
        .map(|file| file.path)
        .collect();
    assert_eq!(paths, [acl.file(), more.join("a.yaml")]);

    // A deleted account is gone from every file.
    acl.control.delete_account("exampleUser").unwrap();
    let unknown = Err(AclError::UnknownAccount("exampleUser".into()));
    assert_eq!(acl.user(10, &[("topic", "TPUB")]), unknown);
    assert_eq!(acl.ask("exampleUser", "otherSecret", 10, &[]), unknown);
    assert_eq!(
        acl.ask("secondUser", "secondSecret", 10, &[("topic", "x")]),
        Ok(Pass::Signed)
    );

    // A file that is gone takes its accounts along, a new one brings them.
    fs::remove_file(more.join("a.yaml")).unwrap();
    assert_eq!(acl.control.poll(), Poll::Reloaded);
    assert_eq!(
        acl.ask("secondUser", "secondSecret", 10, &[]),
        Err(AclError::UnknownAccount("secondUser".into()))
    );
    fs::write(
        more.join("b.yml"),
        "accounts: [{accessKey: thirdUser, secretKey: thirdSecret}]",
    )
    .unwrap();
    assert_eq!(acl.control.poll(), Poll::Reloaded);
    assert_eq!(acl.control.poll(), Poll::Unchanged);
    assert_eq!(
        acl.ask("thirdUser", "thirdSecret", 14, &[]),
        Ok(Pass::Signed)
    );
}

#[test]
fn a_changed_file_is_taken_over_and_a_broken_one_keeps_the_rules_of_before() {
    let acl = acl(FILE);
    let topic = [("topic", "TSUB")];
    assert_eq!(acl.control.poll(), Poll::Unchanged);
    acl.write(&FILE.replace("TSUB=SUB", "TSUB=PUB"));
    assert_eq!(acl.control.poll(), Poll::Reloaded);
    assert_eq!(acl.user(10, &topic), Ok(Pass::Signed));

    for broken in [
        "accounts: [",
        "accounts:\n- accessKey: x\n",
        "",
        "# all gone\n",
        "globalWhiteRemoteAddresses: [x]",
    ] {
        acl.write(broken);
        assert_eq!(acl.control.poll(), Poll::Kept, "{broken}");
        assert_eq!(acl.control.poll(), Poll::Kept, "{broken}");
        assert_eq!(acl.user(10, &topic), Ok(Pass::Signed), "{broken}");
        let update = AccountUpdate {
            access_key: "exampleUser".into(),
            ..AccountUpdate::default()
        };
        assert!(
            acl.control.update_account(&update).is_err(),
            "a request does not write over {broken}"
        );
        assert_eq!(fs::read_to_string(acl.file()).unwrap(), broken);
    }
    fs::remove_file(acl.file()).unwrap();
    assert_eq!(acl.control.poll(), Poll::Kept);
    assert_eq!(acl.user(10, &topic), Ok(Pass::Signed));

    acl.write(FILE);
    assert_eq!(acl.control.poll(), Poll::Reloaded);
    assert_eq!(
        acl.user(10, &topic),
        Err(AclError::NoTopicPermission("TSUB".into()))
    );
    acl.write("accounts: []\n");
    assert_eq!(
        acl.control.poll(),
        Poll::Reloaded,
        "an empty list is meant so"
    );
    assert!(acl.control.is_empty());
}

#[test]
fn a_broken_file_in_the_folder_does_not_touch_the_others() {
    let acl = acl(FILE);
    let more = acl.folder.path().join("acl");
    fs::create_dir(&more).unwrap();
    fs::write(more.join("a.yml"), "accounts: [").unwrap();
    assert_eq!(acl.control.poll(), Poll::Kept);
    acl.write(&FILE.replace("TSUB=SUB", "TSUB=PUB"));
    assert_eq!(acl.control.poll(), Poll::Kept);
    assert_eq!(
        acl.user(10, &[("topic", "TSUB")]),
        Ok(Pass::Signed),
        "the change of the other file is in force"
    );
}

#[test]
fn why_the_old_rules_stay_is_logged_once_for_each_content() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let acl = acl(FILE);
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        acl.write("accounts: [");
        (0..3).for_each(|_| assert_eq!(acl.control.poll(), Poll::Kept));
        acl.write("globalWhiteRemoteAddresses: [nonsense]");
        (0..3).for_each(|_| assert_eq!(acl.control.poll(), Poll::Kept));
    });
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert_eq!(
        text.matches("the rules of before stay in force").count(),
        2,
        "{text}"
    );
    assert!(text.contains("`nonsense` is no address"), "{text}");
    assert!(!text.contains("exampleSecret"));
}

#[tokio::test]
async fn watching_takes_changes_over_until_it_is_stopped() {
    let acl = acl(FILE);
    let (folder, control) = (acl.folder, Arc::new(acl.control));
    let stop = CancellationToken::new();
    let watch = tokio::spawn(Arc::clone(&control).watch(Duration::from_millis(5), stop.clone()));
    let new = folder.path().join("new");
    fs::write(&new, "globalWhiteRemoteAddresses: ['*']").unwrap();
    fs::rename(&new, folder.path().join("plain_acl.yml")).unwrap();
    let request = Request {
        code: 10,
        fields: || [("", ""); 0],
        body: b"",
        peer: "1.2.3.4".parse().unwrap(),
    };
    tokio::time::timeout(Duration::from_secs(20), async {
        while control.check(&request, []).is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap();
    stop.cancel();
    watch.await.unwrap();
}

#[test]
fn accounts_are_changed_in_the_file_and_at_once() {
    let acl = acl(&format!("{FILE}extra: kept\n"));
    // An existing account keeps what the request does not name.
    let update = AccountUpdate {
        access_key: "exampleUser".into(),
        topic_perms: Some(vec!["TNEW=PUB".into(), "TSUB=SUB|PUB".into()]),
        ..AccountUpdate::default()
    };
    acl.control.update_account(&update).unwrap();
    assert_eq!(acl.user(10, &[("topic", "TNEW")]), Ok(Pass::Signed));
    assert_eq!(
        acl.user(10, &[("topic", "TPUB")]),
        Err(AclError::NoTopicPermission("TPUB".into()))
    );
    assert_eq!(
        acl.user(38, &[("consumerGroup", "GDENY")]),
        Err(AclError::NoGroupPermission("GDENY".into()))
    );
    let fields = [("AccessKey", "exampleUser")];
    assert_eq!(
        acl.send("10.9.0.3", 10, &fields, b""),
        Ok(Pass::AccountWhiteList)
    );

    // A new account.
    let update = AccountUpdate {
        access_key: "newUserKey".into(),
        secret_key: Some(Secret("87654321".into())),
        admin: true,
        white_remote_address: Some("192.168.0.*".into()),
        default_topic_perm: Some("PUB".into()),
        default_group_perm: Some(String::new()),
        ..AccountUpdate::default()
    };
    acl.control.update_account(&update).unwrap();
    assert_eq!(acl.ask("newUserKey", "87654321", 17, &[]), Ok(Pass::Signed));

    // It is all in the file, with what nobody here knows, and the content before as backup.
    let text = fs::read_to_string(acl.file()).unwrap();
    assert!(
        text.contains("extra: kept") && text.contains("secretKey: '12345678'"),
        "{text}"
    );
    let before = fs::read_to_string(acl.folder.path().join("plain_acl.yml.bak")).unwrap();
    assert!(
        before.contains("TNEW=PUB") && !before.contains("newUserKey"),
        "{before}"
    );
    assert_eq!(
        acl.control.poll(),
        Poll::Unchanged,
        "its own change is no news"
    );
    let again = Acl {
        control: open_in(acl.folder.path()).unwrap(),
        folder: acl.folder,
    };
    assert_eq!(
        again.ask("newUserKey", "87654321", 17, &[]),
        Ok(Pass::Signed)
    );
    assert_eq!(
        again.ask("exampleAdmin", "12345678", 17, &[]),
        Ok(Pass::Signed)
    );
    assert_eq!(
        again.control.versions()[0].version,
        DataVersion {
            timestamp: 5000,
            counter: 2
        }
    );

    again.control.delete_account("newUserKey").unwrap();
    assert_eq!(
        again.ask("newUserKey", "87654321", 17, &[]),
        Err(AclError::UnknownAccount("newUserKey".into()))
    );
    assert!(matches!(
        again.control.delete_account("newUserKey"),
        Err(AclFileError::NoAccount(_))
    ));
    assert!(matches!(
        again.control.delete_account(""),
        Err(AclFileError::NoAccount(_))
    ));
    assert_eq!(again.control.versions()[0].version.counter, 3);
}

#[test]
fn a_hand_edit_and_a_request_both_stay() {
    let acl = acl(FILE);
    acl.write(&FILE.replace("TSUB=SUB", "TSUB=PUB"));
    acl.control
        .update_white_list(&["172.16.0.1".into()], None)
        .unwrap();
    assert_eq!(acl.user(10, &[("topic", "TSUB")]), Ok(Pass::Signed));
    assert_eq!(
        acl.send("172.16.0.1", 10, &[], b""),
        Ok(Pass::GlobalWhiteList)
    );
    assert_eq!(
        acl.send("10.1.3.4", 10, &[], b""),
        Err(AclError::NoAccessKey),
        "the list is replaced"
    );
}

#[test]
fn wrong_changes_are_refused_and_change_nothing() {
    let acl = acl(FILE);
    let good = || AccountUpdate {
        access_key: "newUserKey".into(),
        secret_key: Some(Secret("new-s3cr3t".into())),
        ..AccountUpdate::default()
    };
    let some = |text: &str| Some(text.to_owned());
    for (update, message) in [
        (
            AccountUpdate {
                access_key: "x".into(),
                ..good()
            },
            "accessKey must be longer than 6 characters",
        ),
        (
            AccountUpdate {
                secret_key: Some(Secret("s3cr3t".into())),
                ..good()
            },
            "secretKey must be longer than 6 characters",
        ),
        (
            AccountUpdate {
                secret_key: None,
                ..good()
            },
            "a new account needs a secretKey",
        ),
        (
            AccountUpdate {
                white_remote_address: some("1.2.3"),
                ..good()
            },
            "whiteRemoteAddress: `1.2.3` is no address",
        ),
        (
            AccountUpdate {
                default_topic_perm: some("PUBB"),
                ..good()
            },
            "defaultTopicPerm=PUBB is wrong",
        ),
        (
            AccountUpdate {
                default_group_perm: some("pub"),
                ..good()
            },
            "defaultGroupPerm=pub is wrong",
        ),
        (
            AccountUpdate {
                topic_perms: Some(vec!["t".into()]),
                ..good()
            },
            "topicPerms: `t` is wrong",
        ),
        (
            AccountUpdate {
                group_perms: Some(vec!["g=ALL".into()]),
                ..good()
            },
            "groupPerms: `g=ALL` is wrong",
        ),
    ] {
        let error = acl.control.update_account(&update).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
        assert!(
            !error.contains("s3cr3t") && !format!("{update:?}").contains("s3cr3t"),
            "{update:?}"
        );
    }
    let wrong = acl
        .control
        .update_white_list(&["10.0.0.1".into(), "x".into()], None)
        .unwrap_err();
    assert!(
        wrong.to_string().starts_with("`x` is no address"),
        "{wrong}"
    );
    for elsewhere in ["/etc/passwd", "plain_acl.yml", "../plain_acl.yml"] {
        let wrong = acl
            .control
            .update_white_list(&[], Some(elsewhere))
            .unwrap_err();
        assert!(matches!(wrong, AclFileError::NoFile(_)), "{wrong}");
    }
    assert_eq!(fs::read_to_string(acl.file()).unwrap(), FILE);
    assert!(!acl.folder.path().join("plain_acl.yml.bak").exists());
    acl.control
        .update_white_list(&[], Some(acl.file().to_str().unwrap()))
        .unwrap();
    assert_eq!(
        acl.send("10.1.3.4", 10, &[], b""),
        Err(AclError::NoAccessKey)
    );
}

#[test]
fn no_form_of_debug_output_shows_a_secret() {
    let acl = acl(FILE);
    let shown = format!(
        "{:?} {:?} {:?}",
        acl.control,
        acl.control.rules.load(),
        Secret("exampleSecret".into())
    );
    assert!(
        !shown.contains("exampleSecret") && !shown.contains("12345678"),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn any_address_text_is_parsed_or_refused(entry in "[0-9a-f:.*{},\\- ]{0,24}", peer: u32) {
        if let Ok(list) = AddressList::parse(&entry) {
            let _ = list.matches(IpAddr::V4(peer.into()));
        }
    }

    #[test]
    fn any_file_is_read_or_refused(text in "((accounts|accessKey|secretKey|topicPerms|globalWhiteRemoteAddresses|- |  |: |a=PUB|longEnough|\\[|\\]|\\{|&a|\\*a|\n)){0,20}") {
        let _ = file::FileText::parse(text.as_bytes());
        let _ = file::Document::parse(text.as_bytes());
    }
}
