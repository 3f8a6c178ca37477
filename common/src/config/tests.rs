//! Behaviour of declarations, sources, listings and changes at run time.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::tempdir;

use super::*;
use crate::clock::Clock;

crate::config_enum! {
    /// A role.
    enum Role {
        AsyncMaster = "ASYNC_MASTER",
        Slave = "SLAVE",
    }
}

crate::config! {
    /// Keys of a broker in small.
    struct Small {
        /// Port that clients connect to.
        listen_port: u16 = 10911, "listenPort", important, range(1..=65535);
        /// Id; 0 is the master.
        broker_id: i64 = 0, "brokerId", important;
        /// Role.
        role: Role = Role::AsyncMaster, "brokerRole", important;
        /// Long polls.
        long_polling: bool = true, "longPollingEnable", mutable;
        /// Held pulls at most.
        held: i32 = 100, "heldPulls", mutable, range(1..=1000);
        /// Root folder.
        root: PathBuf = "/store".into(), "storePathRootDir", important;
        /// Log folder.
        log: PathBuf = PathBuf::new(), "storePathCommitLog", derived(|c| c.root.join("commitlog"));
        /// Twice the held pulls.
        twice: i32 = 0, "twiceHeld", derived(|c| c.held * 2);
        /// File size.
        file_size: ByteSize = ByteSize::mib(1024), "mappedFileSizeCommitLog", alias("mapedFileSizeCommitLog");
        /// Ratio.
        ratio: f64 = 40.0, "ratio", mutable;
        /// Certificate key's password.
        password: Option<String> = None, "tls.server.keyPassword", secret, mutable;
        /// Threads.
        threads: i32 = 3, "serverSelectorThreads", ignored("threads are shared");
        /// A name.
        name: String = "a".into(), "brokerName", important, mutable;
    }
    with {
        /// Store keys.
        store: Store,
    }
}

crate::config! {
    struct Store {
        /// Also the store wants to know it.
        broker_id: i64 = 0, "brokerId";
        /// Flush interval.
        flush_interval_ms: u64 = 500, "flushIntervalCommitLog", mutable, important;
    }
}

fn rules(values: &mut Small) -> Result<(), Invalid> {
    if values.role == Role::Slave && values.broker_id <= 0 {
        return Err(Invalid::new("brokerId", "a number above 0 on a slave"));
    }
    if values.name.is_empty() {
        return Err(Invalid::new("brokerName", "a name"));
    }
    Ok(())
}

fn load(sources: &Sources) -> Result<Config<Small>, ConfigError> {
    Config::load_with(sources, rules, Clock::system())
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf, Sources) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("broker.conf");
    fs::write(&path, text).unwrap();
    let sources = Sources::default().with_file(Some(path.clone()));
    (folder, path, sources)
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}

#[test]
fn declared_defaults_hold_without_any_source() {
    let config = load(&Sources::default()).unwrap();
    let values = config.get();
    assert_eq!(
        (values.listen_port, values.long_polling, values.file_size),
        (10911, true, ByteSize(1 << 30))
    );
    assert_eq!(values.log, PathBuf::from("/store/commitlog"));
    assert_eq!(values.store.flush_interval_ms, 500);
    assert!(config.warnings().is_empty());
    assert_eq!(config.origin("listenPort"), Origin::Default);
    assert!(faults::<Small>().is_empty(), "{:?}", faults::<Small>());
}

#[test]
fn command_line_beats_environment_beats_file_beats_default() {
    let (_folder, path, sources) =
        file("listenPort=1\nbrokerId=1\nheldPulls=1\nstorePathRootDir=/a\n");
    let mut sources = sources.with_variables(variables(&[
        ("MINIMQ_LISTENPORT", "2"),
        ("MINIMQ_BROKERID", "2"),
        ("MINIMQ_TLS_SERVER_KEYPASSWORD", "from-environment"),
        ("LISTENPORT", "9"),
    ]));
    sources.set("listenPort=3").unwrap();
    let config = load(&sources).unwrap();
    let values = config.get();
    assert_eq!(
        (values.listen_port, values.broker_id, values.held),
        (3, 2, 1)
    );
    assert_eq!(
        values.store.broker_id, 2,
        "a key of two sections reaches both"
    );
    assert_eq!(values.log, PathBuf::from("/a/commitlog"));
    assert_eq!(values.password.as_deref(), Some("from-environment"));
    assert_eq!(config.origin("listenPort"), Origin::CommandLine);
    assert_eq!(
        config.origin("brokerId"),
        Origin::Environment("MINIMQ_BROKERID".into())
    );
    assert_eq!(config.origin("heldPulls"), Origin::File(path, 3));
}

#[test]
fn unknown_keys_warn_with_their_place_and_are_listed() {
    let (_folder, path, mut sources) = file("\nlistenPrt=1\nfancy.key=a\\\\b\n");
    sources.set_key("other", "x");
    let config = load(&sources).unwrap();
    let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
    let path = path.display();
    assert_eq!(
        warnings,
        [
            format!(
                "{path}:2: there is no key listenPrt; it has no effect (did you mean listenPort?)"
            ),
            format!("{path}:3: there is no key fancy.key; it has no effect"),
            "command line: there is no key other; it has no effect".to_owned(),
        ]
    );
    assert!(
        config
            .print_all()
            .ends_with("listenPrt=1\nfancy.key=a\\b\nother=x\n")
    );
    assert!(
        config
            .export()
            .ends_with("listenPrt=1\nfancy.key=a\\\\b\nother=x\n")
    );
}

#[test]
fn keys_without_effect_and_repeated_keys_warn() {
    let (_folder, path, sources) = file("serverSelectorThreads=4\nbrokerId=1\nbrokerId=2\n");
    let config = load(&sources).unwrap();
    let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
    let path = path.display();
    assert_eq!(
        warnings,
        [
            format!("{path}:3: brokerId is set more than once; this one counts"),
            format!("{path}:1: serverSelectorThreads has no effect here: threads are shared"),
        ]
    );
    assert_eq!(config.get().broker_id, 2);
}

#[test]
fn wrong_values_at_start_are_all_named_with_place_and_expectation() {
    let (_folder, path, sources) = file(
        "listenPort=0\nbrokerId=abc\nbrokerRole=MASTER\nlongPollingEnable=yes\nmappedFileSizeCommitLog=1T\n\
         ratio=NaN\nstorePathRootDir=\nheldPulls=99999999999\n",
    );
    let mut sources = sources.with_variables(variables(&[("MINIMQ_TWICEHELD", "x")]));
    sources.set("flushIntervalCommitLog=-1").unwrap();
    let Err(error) = load(&sources) else {
        panic!("accepted")
    };
    let path = path.display();
    let expected = [
        format!("{path}:1: listenPort=0 is wrong: expected a whole number from 1 to 65535"),
        format!("{path}:2: brokerId=abc is wrong: expected a whole number"),
        format!("{path}:3: brokerRole=MASTER is wrong: expected one of ASYNC_MASTER SLAVE"),
        format!("{path}:4: longPollingEnable=yes is wrong: expected true or false"),
        format!(
            "{path}:5: mappedFileSizeCommitLog=1T is wrong: expected a number of bytes, as in 1048576 or 1M"
        ),
        format!("{path}:6: ratio=NaN is wrong: expected a number"),
        format!("{path}:7: storePathRootDir= is wrong: expected a path"),
        format!(
            "{path}:8: heldPulls=99999999999 is wrong: expected a whole number from -2147483648 to 2147483647"
        ),
        "environment MINIMQ_TWICEHELD: twiceHeld=x is wrong: expected a whole number".to_owned(),
        "command line: flushIntervalCommitLog=-1 is wrong: expected a whole number".to_owned(),
    ];
    assert_eq!(error.to_string(), expected.join("\n"));
}

#[test]
fn a_value_that_is_overridden_is_not_read() {
    let (_folder, _path, mut sources) = file("listenPort=abc\n");
    sources.set("listenPort=1").unwrap();
    assert_eq!(load(&sources).unwrap().get().listen_port, 1);
}

#[test]
fn values_that_do_not_go_together_are_reported_where_they_stand() {
    let (_folder, path, sources) = file("brokerRole=slave\nbrokerId=0\n");
    let Err(error) = load(&sources) else {
        panic!("accepted")
    };
    let expected = format!(
        "{}:2: brokerId=0 is wrong: expected a number above 0 on a slave",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn unreadable_files_and_broken_arguments_say_what_to_do() {
    let sources = Sources::default().with_file(Some("/nowhere/broker.conf".into()));
    let error = load(&sources).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the configuration file /nowhere/broker.conf: "),
        "{error}"
    );
    let (_folder, path, sources) = file("a=b\nc=\\u00zz\n");
    let error = load(&sources).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "configuration file {}: line 2: `\\u00zz`",
            path.display()
        )),
        "{error}"
    );
    let error = Sources::default()
        .set("listenPort")
        .unwrap_err()
        .to_string();
    assert_eq!(error, "`--set listenPort` is wrong: expected key=value");
}

#[test]
fn other_spellings_are_read_and_the_declared_one_is_listed() {
    let (_folder, _path, sources) = file("mapedFileSizeCommitLog=4m\n");
    let config = load(&sources).unwrap();
    assert_eq!(config.get().file_size, ByteSize(4 << 20));
    assert!(
        config
            .print_all()
            .contains("mappedFileSizeCommitLog=4194304\n")
    );
    assert!(config.warnings().is_empty());
}

#[test]
fn listings_show_all_or_the_important_keys_and_no_secret() {
    let mut sources = Sources::default();
    sources.set("tls.server.keyPassword=hunter22").unwrap();
    let config = load(&sources).unwrap();
    assert_eq!(
        config.print_important(),
        "listenPort=10911\nbrokerId=0\nbrokerRole=ASYNC_MASTER\nstorePathRootDir=/store\nbrokerName=a\n\
         flushIntervalCommitLog=500\n"
    );
    let all = config.print_all();
    assert!(
        all.contains("\ntls.server.keyPassword=******\n") && all.contains("\nratio=40.0\n"),
        "{all}"
    );
    assert_eq!(all.matches("brokerId=").count(), 1);
    assert!(!format!("{config:?}").contains("hunter22"));
    assert!(!config.export().contains("hunter22"));
    let without = load(&Sources::default()).unwrap();
    assert!(without.print_all().contains("\ntls.server.keyPassword=\n"));
    assert!(
        !without.export().contains("keyPassword"),
        "what is not set is left out"
    );
}

#[test]
fn a_secret_is_not_shown_in_errors() {
    crate::config! {
        struct Pin {
            /// A pin.
            pin: i32 = 1, "pin", secret, mutable;
        }
    }
    let mut sources = Sources::default();
    sources.set("pin=12x4").unwrap();
    let Err(error) = Config::<Pin>::load(&sources) else {
        panic!("accepted")
    };
    assert_eq!(
        error.to_string(),
        "command line: pin=****** is wrong: expected a whole number"
    );
    let config = Config::from_values(Pin { pin: 1234 });
    assert!(
        !config
            .update_text(b"pin=99x99")
            .unwrap_err()
            .to_string()
            .contains("99")
    );
    assert!(!format!("{:?}", config.update_text(b"pin=5678").unwrap()).contains("5678"));
}

#[test]
fn updates_change_values_and_what_follows_from_them_at_once() {
    let (clock, time) = Clock::manual(1000);
    let config: Config<Small> = Config::load_with(&Sources::default(), rules, clock).unwrap();
    assert_eq!(
        config.version(),
        Version {
            timestamp_ms: 1000,
            counter: 0
        }
    );
    time.set_ms(2000);
    let update = config
        .update_text(b"heldPulls=7\nflushIntervalCommitLog=10\nlongPollingEnable=true\n")
        .unwrap();
    assert_eq!(
        (
            config.get().held,
            config.get().twice,
            config.get().store.flush_interval_ms
        ),
        (7, 14, 10)
    );
    let changed: Vec<&str> = update.changed.iter().map(|change| change.key).collect();
    assert_eq!(
        changed,
        ["heldPulls", "twiceHeld", "flushIntervalCommitLog"]
    );
    assert!(update.changed("heldPulls") && !update.changed("longPollingEnable"));
    assert_eq!(
        config.version(),
        Version {
            timestamp_ms: 2000,
            counter: 1
        }
    );
    assert_eq!(config.origin("heldPulls"), Origin::RunTime);
}

#[test]
fn booleans_at_run_time_are_read_as_java_reads_them() {
    let config = load(&Sources::default()).unwrap();
    for (text, expected) in [
        ("TRUE", true),
        ("notabool", false),
        ("true", true),
        ("yes", false),
        ("tRuE", true),
        ("", false),
    ] {
        config
            .update_text(format!("longPollingEnable={text}").as_bytes())
            .unwrap();
        assert_eq!(config.get().long_polling, expected, "{text}");
    }
}

#[test]
fn one_refused_key_refuses_the_whole_update() {
    let (_folder, path, sources) = file("heldPulls=5\n");
    let config = load(&sources).unwrap();
    let before = config.print_all();
    for (wrong, message) in [
        ("nosuch=1", "there is no key nosuch"),
        (
            "listenPort=10911",
            "listenPort cannot be changed at run time",
        ),
        (
            "listen\\u0050ort=1",
            "listenPort cannot be changed at run time",
        ),
        (
            "   listenPort  =  1",
            "listenPort cannot be changed at run time",
        ),
        (
            "serverSelectorThreads=1",
            "serverSelectorThreads cannot be changed at run time: it has no effect here, threads are shared",
        ),
        (
            "flushIntervalCommitLog=x",
            "change at run time: flushIntervalCommitLog=x is wrong: expected a whole number",
        ),
        (
            "heldPulls=1001",
            "change at run time: heldPulls=1001 is wrong: expected a whole number from 1 to 1000",
        ),
        (
            "brokerName=",
            "change at run time: brokerName= is wrong: expected a name",
        ),
        (
            "x=\\u12",
            "line 2: `\\u12` is not a \\uXXXX escape (four hexadecimal digits are needed)",
        ),
    ] {
        let error = config
            .update_text(format!("ratio=1\n{wrong}\nlongPollingEnable=false").as_bytes())
            .unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(config.print_all(), before);
        assert_eq!(fs::read_to_string(&path).unwrap(), "heldPulls=5\n");
        assert_eq!(config.version().counter, 0);
    }
}

#[test]
fn an_update_without_keys_does_nothing() {
    let config = load(&Sources::default()).unwrap();
    assert_eq!(
        config.update_text(b"\n# nothing\n").unwrap(),
        Update::default()
    );
    assert_eq!(config.version().counter, 0);
}

#[test]
fn updates_are_stored_beside_comments_and_other_keys_and_come_back() {
    let (_folder, path, sources) =
        file("# mine\nbrokerName = b\n\nlisten.extra=1\nlistenPort=77\n");
    let config = load(&sources).unwrap();
    config
        .update_text("brokerName=ünï \\\\x\nheldPulls=9\nlongPollingEnable=maybe".as_bytes())
        .unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "# mine\nbrokerName = \\u00FCn\\u00EF \\\\x\n\nlisten.extra=1\nlistenPort=77\nlongPollingEnable=false\nheldPulls=9\n"
    );
    assert_eq!(
        fs::read_to_string(crate::atomic_file::backup_path(&path)).unwrap(),
        "# mine\nbrokerName = b\n\nlisten.extra=1\nlistenPort=77\n"
    );
    let again = load(&sources).unwrap();
    let values = again.get();
    assert_eq!(
        (
            values.name.as_str(),
            values.held,
            values.long_polling,
            values.listen_port
        ),
        ("ünï \\x", 9, false, 77)
    );
}

#[test]
fn an_update_that_cannot_be_stored_changes_nothing() {
    let (folder, _path, sources) = file("");
    let config = load(&sources).unwrap();
    config.store_in(
        folder
            .path()
            .join("broker.conf")
            .join("below-a-file.properties"),
    );
    let error = config.update_text(b"heldPulls=9").unwrap_err().to_string();
    assert!(
        error.starts_with("the change could not be stored: cannot "),
        "{error}"
    );
    assert_eq!(config.get().held, 100);
    config.store_in(folder.path().join("new").join("broker.properties"));
    config.update_text(b"heldPulls=9").unwrap();
    assert_eq!(
        fs::read_to_string(folder.path().join("new/broker.properties")).unwrap(),
        "heldPulls=9\n"
    );
}

#[test]
fn an_update_tells_what_the_next_start_will_override() {
    let mut sources = Sources::default().with_variables(variables(&[("MINIMQ_HELDPULLS", "5")]));
    sources.set_key("brokerName", "x");
    let config = load(&sources).unwrap();
    let update = config
        .update_text(b"heldPulls=6\nbrokerName=y\nratio=1")
        .unwrap();
    assert_eq!(
        update.overridden_at_start,
        [
            ("heldPulls", Origin::Environment("MINIMQ_HELDPULLS".into())),
            ("brokerName", Origin::CommandLine)
        ]
    );
}

#[test]
fn faults_of_a_declaration_are_found() {
    crate::config! {
        struct Faulty {
            one: i32 = 1, "a.b";
            /// Two.
            two: i32 = 2, "aB", alias("a_b");
            /// Three.
            three: i32 = 3, "a_b";
        }
    }
    let values = Faulty::default();
    assert_eq!((values.one, values.two, values.three), (1, 2, 3));
    assert_eq!(
        faults::<Faulty>(),
        [
            "a.b has no description",
            "a_b means both aB and a_b",
            "a.b and a_b share an environment variable"
        ]
    );
}

#[test]
fn readers_see_whole_updates_only() {
    let config = load(&Sources::default()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=300 {
                config
                    .update_text(format!("heldPulls={n}\nflushIntervalCommitLog={n}").as_bytes())
                    .unwrap();
            }
        });
        while !writer.is_finished() {
            let values = config.get();
            if values.held != 100 || values.store.flush_interval_ms != 500 {
                assert_eq!(
                    i64::from(values.held),
                    values.store.flush_interval_ms.cast_signed()
                );
                assert_eq!(values.twice, values.held * 2);
            }
        }
    });
}

proptest! {
    #[test]
    fn any_update_is_taken_whole_or_not_at_all(text in "((heldPulls|ratio|brokerName|listenPort|tls.server.keyPassword|x)[=: ].{0,5}\n){0,4}") {
        let config = load(&Sources::default()).unwrap();
        let before = config.print_all();
        if config.update_text(text.as_bytes()).is_err() {
            prop_assert_eq!(config.print_all(), before);
        }
        let export = crate::properties_file::PropertiesFile::parse(config.export().as_bytes()).unwrap();
        let values = config.get();
        prop_assert_eq!(export.get("brokerName"), Some(values.name.as_str()));
    }
}
