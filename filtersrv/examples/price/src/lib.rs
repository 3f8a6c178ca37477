//! Keeps messages whose property `price` is a number of at most 100.

use minimq_filter_sdk::{Message, filter};

#[filter]
fn affordable(message: &Message) -> bool {
    message.property_f64("price").is_ok_and(|price| price <= 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_as_numbers() {
        let message = |price: &str| Message::new("T").with_property("price", price);
        assert!(affordable(&message("99.9")));
        assert!(affordable(&message("1e2")));
        assert!(!affordable(&message("100.01")));
        assert!(!affordable(&message("cheap")));
        assert!(!affordable(&Message::new("T")));
    }
}
