//! Keeps every third message above ten, by the property `SequenceId`. A message without it is dropped;
//! one whose `SequenceId` is no number is an error, which the server's policy decides about.

use minimq_filter_sdk::{Error, Message, filter};

#[filter]
fn every_third_above_ten(message: &Message) -> Result<bool, Error> {
    match message.property_i64("SequenceId") {
        Ok(n) => Ok(n > 10 && n % 3 == 0),
        Err(Error::Absent) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_twelve_fifteen_and_so_on() {
        let message = |n: &str| Message::new("T").with_property("SequenceId", n);
        let kept: Vec<u32> =
            (0..100).filter(|n| every_third_above_ten(&message(&n.to_string())) == Ok(true)).collect();
        assert_eq!(kept, (12..100).step_by(3).collect::<Vec<_>>());
        assert_eq!(every_third_above_ten(&Message::new("T")), Ok(false));
        assert_eq!(every_third_above_ten(&message("x")), Err(Error::NotANumber));
    }
}
