//! A subscription ready for use: codes of its tags, or its compiled selector.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use minimq_protocol::body::SubscriptionData;
use minimq_protocol::message::RecordRef;
use minimq_protocol::subscription::{ALL, TagExpression, is_tag_type};
use parking_lot::Mutex;

use crate::filter::sql::{Selector, SelectorError};

/// Selectors kept for pulls that bring their expression along.
const KEPT_SELECTORS: usize = 1000;

/// What a pull lets pass.
#[derive(Debug, Clone)]
pub enum PullFilter {
    /// Everything.
    All,
    /// Messages whose tags have one of these codes.
    Tags(Vec<i32>),
    /// Messages for which the selector is true.
    Sql(Arc<Selector>),
}

impl PullFilter {
    /// By the queue entry alone; a selector cannot say.
    pub fn may_match(&self, tags_code: i64) -> bool {
        match self {
            Self::All | Self::Sql(_) => true,
            // The low 32 bits are the hash; the cast cuts on purpose.
            Self::Tags(codes) => codes.contains(&(tags_code as i32)),
        }
    }

    /// By the whole record; of tags nothing more is known here than their hash.
    pub fn matches_record(&self, record: &[u8]) -> bool {
        let Self::Sql(selector) = self else {
            return true;
        };
        RecordRef::parse_slice(record)
            .is_ok_and(|message| selector.matches_properties(message.properties()))
    }
}

/// One group's subscription of one topic.
#[derive(Debug)]
pub struct Subscription {
    /// As the client sent it.
    pub data: SubscriptionData,
    /// What it lets pass; `None`: its expression does not compile.
    pub filter: Option<Arc<PullFilter>>,
}

impl Subscription {
    /// Makes a client's subscription ready. Codes are computed here: some clients send wrong ones.
    pub fn new(data: SubscriptionData) -> Self {
        let filter = filter_of(
            &data.sub_string,
            Some(&data.expression_type),
            data.class_filter_mode,
        )
        .ok();
        Self {
            data,
            filter: filter.map(Arc::new),
        }
    }

    /// Whether it is one of tags.
    pub fn is_tag(&self) -> bool {
        is_tag_type(Some(&self.data.expression_type))
    }
}

/// The filter of an expression.
///
/// # Errors
/// Why it is none.
pub fn filter_of(
    text: &str,
    expression_type: Option<&str>,
    class_filter: bool,
) -> Result<PullFilter, String> {
    if class_filter {
        return Ok(PullFilter::All);
    }
    if is_tag_type(expression_type) {
        let tags = TagExpression::parse(Some(text)).map_err(|error| error.to_string())?;
        return Ok(if tags.takes_all() || text == ALL {
            PullFilter::All
        } else {
            PullFilter::Tags(tags.codes)
        });
    }
    if expression_type != Some(minimq_protocol::subscription::TYPE_SQL92) {
        return Err(format!(
            "expression type \"{}\" is not known",
            expression_type.unwrap_or_default()
        ));
    }
    selector_of(text)
        .map(PullFilter::Sql)
        .map_err(|error| error.to_string())
}

/// A compiled selector; the same text is compiled once while it is in use.
///
/// # Errors
/// Why it does not compile.
pub fn selector_of(text: &str) -> Result<Arc<Selector>, SelectorError> {
    static KEPT: LazyLock<Mutex<HashMap<String, Arc<Selector>>>> = LazyLock::new(Mutex::default);
    if let Some(known) = KEPT.lock().get(text) {
        return Ok(known.clone());
    }
    let selector = Arc::new(Selector::parse(text)?);
    let mut kept = KEPT.lock();
    if kept.len() >= KEPT_SELECTORS {
        kept.retain(|_, selector| Arc::strong_count(selector) > 1);
        if kept.len() >= KEPT_SELECTORS {
            kept.clear();
        }
    }
    kept.insert(text.to_owned(), selector.clone());
    Ok(selector)
}
