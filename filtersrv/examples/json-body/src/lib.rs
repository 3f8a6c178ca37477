//! Keeps messages whose body is a JSON object with `customer.country` "NZ": a real parser in the guest.

use minimq_filter_sdk::{Message, filter};
use serde_json::Value;

#[filter]
fn from_new_zealand(message: &Message) -> bool {
    let Ok(body) = message.body() else { return false };
    let Ok(order) = serde_json::from_slice::<Value>(&body) else { return false };
    order["customer"]["country"] == "NZ"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_nested_field() {
        let message = |body: &str| Message::new("T").with_body(body);
        assert!(from_new_zealand(&message(r#"{"customer":{"country":"NZ"}}"#)));
        assert!(!from_new_zealand(&message(r#"{"customer":{"country":"IS"}}"#)));
        assert!(!from_new_zealand(&message("not json")));
        assert!(!from_new_zealand(&Message::new("T")));
    }
}
