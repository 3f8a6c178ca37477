//! White-list entries against the recorded results.

use super::*;

#[test]
fn addresses_match_as_recorded_but_for_expanded_zero_groups() {
    let mut rows = 0;
    for row in golden("acl-remote-address.tsv") {
        let [pattern, address, expected] = row.as_slice() else {
            panic!("{row:?}")
        };
        let address: IpAddr = text(address).parse().unwrap();
        let found = AddressList::parse(text(pattern)).map(|list| list.matches(address));
        // Documented in `address`: `::` before a range is expanded.
        let ours =
            text(pattern) == "2001:db8::1-5" && text("2001:db8:0:0:0:0:0:3").parse() == Ok(address);
        match expected.as_str() {
            "true" => assert_eq!(found, Ok(true), "{row:?}"),
            "false" => assert_eq!(found, Ok(ours), "{row:?}"),
            error => assert!(error.contains("Exception") && found.is_err(), "{row:?}"),
        }
        rows += 1;
    }
    assert_eq!(rows, 176);
}

#[test]
fn addresses_in_the_forms_that_are_not_recorded() {
    let matches = |entry: &str, address: &str| {
        AddressList::parse(entry)
            .unwrap()
            .matches(address.parse().unwrap())
    };
    assert!(
        matches("2001:db8::1-5:*", "2001:db8::3:77")
            && !matches("2001:db8::1-5:*", "2001:db8::6:77")
    );
    assert!(
        matches("2001:db8:0:*", "2001:db8:0:1:2:3:4:5")
            && !matches("2001:db8:0:*", "2001:db8:1::5")
    );
    assert!(matches("fe80::a-ff", "fe80::b0") && !matches("fe80::a-ff", "fe80::9"));
    assert!(matches("::1, 10.0.0.*", "10.0.0.9") && matches("::1, 10.0.0.*", "::1"));
    assert!(matches("10.0.0.{1, 2}", "10.0.0.2") && !matches("10.0.0.{1, 2}", "10.0.0.3"));
    assert!(matches("10.0.0.1", "::ffff:10.0.0.1") && matches("10.0.0.*", "::ffff:10.0.0.1"));
    assert!(matches("fe80:0:0:0:0:0:0:1", "fe80::1") && matches(" * ", "::5"));
    for wrong in [
        "10.0.0.5-1",
        "10.0.0.-5",
        "10.0.0.1-256",
        "*.0.0.1",
        "10.*",
        "10.0.0.0.*",
        "10.x.*.1",
        "{1,2}",
        "10.0.0.{x}",
        "10.0.0{1}",
        "fe80:*:1:2",
        "fe80:::*",
        "fe80::1::*",
        "*:1",
        "1:2:3:4:5:6:7:8:*",
        "fe80::+1-2",
        "-",
        "a-b",
        "::g-*",
    ] {
        assert_eq!(
            AddressList::parse(wrong),
            Err(AddressError(wrong.to_owned())),
            "{wrong}"
        );
    }
    let mut list = AddressList::parse("10.0.0.1").unwrap();
    let before = list.clone();
    assert!(list.add("10.0.0.2,x").is_err());
    assert_eq!(list, before, "a refused entry adds nothing");
}
