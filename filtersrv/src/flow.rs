//! Limits on what is under way: pulls and the bytes they brought, a group and in all.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// How much may be under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowLimits {
    pub(crate) pulls_per_group: usize,
    pub(crate) pulls: usize,
    pub(crate) bytes_per_group: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    pulls: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Usages {
    groups: HashMap<Arc<str>, Usage>,
    all: Usage,
}

/// What is under way.
#[derive(Debug)]
pub(crate) struct Flow {
    limits: FlowLimits,
    usages: Mutex<Usages>,
}

/// One pull under way with the bytes it holds; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    flow: Arc<Flow>,
    group: Arc<str>,
    bytes: usize,
}

impl Flow {
    pub(crate) fn new(limits: FlowLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            usages: Mutex::default(),
        })
    }

    /// Pulls under way.
    pub(crate) fn pulls(&self) -> usize {
        self.usages.lock().all.pulls
    }

    /// One more pull of a group.
    ///
    /// # Errors
    /// The limit that is reached, for the remark of code 2.
    pub(crate) fn begin(self: &Arc<Self>, group: &Arc<str>) -> Result<Permit, String> {
        let mut usages = self.usages.lock();
        if usages.all.pulls >= self.limits.pulls {
            return Err(overload(&format!(
                "{} pulls are under way",
                usages.all.pulls
            )));
        }
        let usage = usages.groups.entry(group.clone()).or_default();
        if usage.pulls >= self.limits.pulls_per_group {
            return Err(overload(&format!(
                "{} pulls of group {group} are under way",
                usage.pulls
            )));
        }
        usage.pulls += 1;
        usages.all.pulls += 1;
        Ok(Permit {
            flow: self.clone(),
            group: group.clone(),
            bytes: 0,
        })
    }
}

impl Flow {
    fn give_back(&self, group: &Arc<str>, pulls: usize, bytes: usize) {
        let mut usages = self.usages.lock();
        usages.all.pulls -= pulls;
        usages.all.bytes -= bytes;
        if let Some(usage) = usages.groups.get_mut(group) {
            usage.pulls -= pulls;
            usage.bytes -= bytes;
            if usage.pulls == 0 && usage.bytes == 0 {
                usages.groups.remove(group);
            }
        }
    }
}

fn overload(what: &str) -> String {
    format!("[OVERLOAD]system busy: {what}, that is the limit; try again later")
}

impl Permit {
    /// Says how many bytes this pull holds now, instead of what it held before.
    ///
    /// # Errors
    /// The limit that would be passed, for the remark of code 2; the pull holds nothing then.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), String> {
        let limits = self.flow.limits;
        let mut usages = self.flow.usages.lock();
        let all = usages.all.bytes - self.bytes;
        let usage = usages.groups.entry(self.group.clone()).or_default();
        let group = usage.bytes - self.bytes;
        // A single answer is taken however large it is: otherwise it would never pass.
        let fits = |held: usize, limit| held == 0 || held.saturating_add(bytes) <= limit;
        let refused = if !fits(group, limits.bytes_per_group) {
            Some(overload(&format!(
                "{group} bytes of group {} wait to be filtered or taken",
                self.group
            )))
        } else if !fits(all, limits.bytes) {
            Some(overload(&format!(
                "{all} bytes wait to be filtered or taken"
            )))
        } else {
            None
        };
        self.bytes = if refused.is_some() { 0 } else { bytes };
        usage.bytes = group + self.bytes;
        usages.all.bytes = all + self.bytes;
        refused.map_or(Ok(()), Err)
    }
}

impl Permit {
    /// The pull is over, but its bytes count until the last clone of `bytes` is dropped: until the consumer has them.
    pub(crate) fn until_taken(mut self, bytes: Bytes) -> Bytes {
        let held = Held {
            flow: self.flow.clone(),
            group: self.group.clone(),
            held: std::mem::take(&mut self.bytes),
            bytes,
        };
        drop(self);
        Bytes::from_owner(held)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.flow.give_back(&self.group, 1, self.bytes);
    }
}

/// Bytes on their way to a consumer.
struct Held {
    flow: Arc<Flow>,
    group: Arc<str>,
    /// As many as count.
    held: usize,
    bytes: Bytes,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.flow.give_back(&self.group, 0, self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_and_bytes_are_bounded_by_group_and_in_all_and_given_back() {
        let limits = FlowLimits {
            pulls_per_group: 2,
            pulls: 3,
            bytes_per_group: 100,
            bytes: 150,
        };
        let flow = Flow::new(limits);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut first = flow.begin(&a).unwrap();
        let mut second = flow.begin(&a).unwrap();
        assert!(flow.begin(&a).unwrap_err().contains("2 pulls of group a"));
        let mut third = flow.begin(&b).unwrap();
        assert!(
            flow.begin(&b)
                .unwrap_err()
                .contains("3 pulls are under way")
        );
        assert_eq!(first.hold(60), Ok(()));
        assert!(second.hold(41).unwrap_err().contains("60 bytes of group a"));
        assert_eq!(second.hold(40), Ok(()));
        assert!(third.hold(51).unwrap_err().contains("100 bytes wait"));
        // What it held before does not count twice.
        assert_eq!(first.hold(59), Ok(()));
        drop((first, second));
        assert_eq!(third.hold(1000), Ok(()), "a single answer passes");
        // On its way to the consumer it still counts, but not as a pull.
        let sent = third.until_taken(Bytes::from_static(b"records"));
        assert_eq!((&sent[..], flow.pulls()), (&b"records"[..], 0));
        let mut fourth = flow.begin(&b).unwrap();
        assert!(
            fourth
                .hold(1)
                .unwrap_err()
                .contains("1000 bytes of group b")
        );
        drop(sent);
        assert_eq!(fourth.hold(1), Ok(()));
        drop(fourth);
        assert_eq!(flow.pulls(), 0);
        assert!(flow.usages.lock().groups.is_empty());
    }
}
