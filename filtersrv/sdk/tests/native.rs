//! A filter function under an ordinary test: what it sees of the message the test made.

use minimq_filter_sdk::{Error, Level, Message, Verdict, filter, init};

#[filter]
fn cheap(message: &Message) -> Result<bool, Error> {
    message.log(Level::Info, "looking");
    let limit: f64 = message
        .class_name()
        .and_then(|name| name.parse().ok())
        .ok_or(Error::Own(7))?;
    Ok(message.property_f64("price")? < limit)
}

#[init]
fn start() -> Result<(), Error> {
    Ok(())
}

#[test]
fn the_function_decides_from_what_the_test_gives_it() {
    let message = |price: &str| {
        Message::new("T")
            .with_class_name("10")
            .with_property("price", price)
    };
    assert_eq!(cheap(&message("9.5")), Ok(true));
    assert_eq!(cheap(&message("10.5")), Ok(false));
    assert_eq!(cheap(&message("much")), Err(Error::NotANumber));
    assert_eq!(
        cheap(&Message::new("T").with_class_name("1")),
        Err(Error::Absent)
    );
    assert_eq!(cheap(&Message::new("T")).answer(), -107);
    assert_eq!((true.answer(), false.answer()), (1, 0));
    assert_eq!(start(), Ok(()));
    let logged = message("1");
    let _ = cheap(&logged);
    assert_eq!(logged.logged(), [(Level::Info, "looking".to_owned())]);
}

#[test]
fn body_names_and_texts_are_there() {
    let message = Message::new("T")
        .with_group("G")
        .with_body("0123456789")
        .with_number(1, 44)
        .with_property("TAGS", "a")
        .with_property("UNIQ_KEY", "U");
    assert_eq!(message.body().unwrap(), b"0123456789");
    let mut part = [0; 4];
    assert_eq!(message.read_body(8, &mut part), Ok(2));
    assert_eq!(&part, b"89\0\0");
    assert_eq!(
        message.property_names().collect::<Vec<_>>(),
        ["TAGS", "UNIQ_KEY"]
    );
    assert_eq!(message.queue_offset(), 44);
    let texts = [
        message.topic(),
        message.group(),
        message.tags(),
        message.keys(),
        message.message_id(),
    ];
    assert_eq!(
        texts.map(Option::unwrap_or_default),
        ["T", "G", "a", "", "U"]
    );
}
