//! Access control: accounts of a broker, and the tool's own account from each place it can come from.

use serde_json::json;

use crate::support::{Lab, finish, tool};

const RULES: &str = "globalWhiteRemoteAddresses: []\naccounts:\n- accessKey: adminkey\n  secretKey: admin-secret-1\n  admin: true\n";

/// A broker that asks for signatures, and the folder its rules are in.
pub(crate) fn guarded() -> (Lab, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain_acl.yml");
    std::fs::write(&file, RULES).unwrap();
    let file = file.display().to_string();
    let lab = Lab::start(&[("aclEnable", "true"), ("aclFile", &file)], 1);
    (lab, folder)
}

#[test]
fn the_account_comes_from_options_the_environment_or_a_file() {
    let (lab, folder) = guarded();
    let line = [
        "getBrokerConfig",
        "-b",
        lab.broker(0),
        "-n",
        lab.name_server(),
    ];
    let run = |extra: &[&str], variables: &[(&str, &str)]| {
        finish(
            tool()
                .args(line)
                .args(extra)
                .envs(variables.iter().copied()),
        )
    };
    let refused = run(&[], &[]);
    assert_eq!(refused.status, 3, "{refused:?}");
    assert!(refused.err.contains("try: give an account"), "{refused:?}");
    let account = ["--access-key", "adminkey", "--secret-key", "admin-secret-1"];
    assert_eq!(run(&account, &[]).status, 0);
    let good = [
        ("MINIMQ_ACCESS_KEY", "adminkey"),
        ("MINIMQ_SECRET_KEY", "admin-secret-1"),
    ];
    assert_eq!(run(&[], &good).status, 0);
    // A wrong secret is refused and not printed.
    let wrong = run(
        &["--access-key", "adminkey", "--secret-key", "wrong-secret"],
        &good,
    );
    assert_eq!(wrong.status, 3, "{wrong:?}");
    assert!(!wrong.err.contains("wrong-secret"), "{wrong:?}");
    let half = run(&["--access-key", "adminkey"], &[]);
    assert_eq!(half.status, 1, "{half:?}");
    assert!(half.err.contains("MINIMQ_SECRET_KEY"), "{half:?}");

    std::fs::create_dir(folder.path().join("conf")).unwrap();
    let file = folder.path().join("conf/tools.yml");
    std::fs::write(
        &file,
        "# the tool's account\naccessKey: adminkey\nsecretKey: admin-secret-1\n",
    )
    .unwrap();
    let home = folder.path().display().to_string();
    assert_eq!(run(&[], &[("ROCKETMQ_HOME", &home)]).status, 0);
    let file = file.display().to_string();
    assert_eq!(run(&["--credentials", &file], &[]).status, 0);
    let missing = run(&["--credentials", "/no/such/file"], &[]);
    assert_eq!(missing.status, 5, "{missing:?}");
    assert!(missing.err.contains("/no/such/file"), "{missing:?}");
}

#[test]
fn accounts_are_made_listed_and_deleted() {
    let (lab, _folder) = guarded();
    let (broker, server) = (lab.broker(0), lab.name_server());
    let run = |line: &str| {
        finish(
            tool()
                .args(line.split_whitespace())
                .args(["-n", server])
                .env("MINIMQ_ACCESS_KEY", "adminkey")
                .env("MINIMQ_SECRET_KEY", "admin-secret-1"),
        )
    };
    let ok = |line: &str| {
        let run = run(line);
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{line}: {run:?}");
        run.out
    };
    let made = ok(
        "updateAclConfig -b broker-a -a AdmUserAK -s admsecret123 -w 10.0.0.* -i DENY -u SUB -t topicA=DENY,topicD=SUB -g groupD=DENY -m false",
    );
    assert_eq!(
        made,
        format!(
            "create or update plain access config to {broker} success.\nPlainAccessConfig [accessKey=AdmUserAK, whiteRemoteAddress=10.0.0.*, defaultTopicPerm=DENY, defaultGroupPerm=SUB, topicPerms=[topicA=DENY,topicD=SUB], groupPerms=[groupD=DENY], admin=false]\n"
        )
    );
    let short = run("updateAclConfig -b broker-a -a x -s y");
    assert_eq!(short.status, 3, "{short:?}");
    assert!(short.err.contains("CODE: 209"), "{short:?}");
    let versions = ok("clusterAclConfigVersion -c DefaultCluster");
    assert!(
        versions.contains("#AclConfigVersionNum") && versions.contains("plain_acl.yml"),
        "{versions}"
    );
    assert!(
        versions.ends_with("get cluster's plain access config version success.\n"),
        "{versions}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&ok("clusterAclConfigVersion -b broker-a -o json")).unwrap();
    assert_eq!(
        (&json[0]["broker"], &json[0]["addr"]),
        (&json!("broker-a"), &json!(broker))
    );
    assert_eq!(
        ok("updateGlobalWhiteAddr -b broker-a -g 10.10.10.1"),
        format!("update global white remote addresses to {broker} success.\n")
    );
    assert_eq!(
        ok("deleteAclConfig -b broker-a -a AdmUserAK"),
        format!(
            "delete plain access config account from {broker} success.\naccount's accesskey is:AdmUserAK\n"
        )
    );
}
