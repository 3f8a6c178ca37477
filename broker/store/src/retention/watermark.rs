//! How full a disk is and what that means (store spec 7.3). Pure: numbers in, verdict out.

use crate::config::StoreConfig;

/// Percent of the disks in use; `None` where there is no such folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Of the emptiest disk that gets log files.
    pub log: Option<u64>,
    /// Of the disk with the consume queues.
    pub queues: Option<u64>,
}

/// From which percentage on something happens. Each means *more than*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Expired files are deleted at any hour.
    pub reclaim: u64,
    /// Age does not count any more.
    pub force: u64,
    /// Messages are refused.
    pub refuse: u64,
}

/// What the disks' state asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Delete expired files now.
    pub space: bool,
    /// Delete whatever its age.
    pub immediately: bool,
    /// Which disk is too full to take messages.
    pub refuse: Option<Full>,
}

/// A disk that is too full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// All that get log files.
    Log(u64),
    /// The one with the consume queues.
    Queues(u64),
}

impl Watermarks {
    /// The settings', with RocketMQ's bounds.
    #[must_use]
    pub fn of(config: &StoreConfig) -> Self {
        Self {
            reclaim: u64::from(config.disk_max_used_space_ratio.clamp(10, 95)),
            force: u64::from(config.disk_space_clean_forcibly_ratio),
            refuse: u64::from(config.disk_space_warning_level_ratio),
        }
    }

    /// What `disks` ask for.
    #[must_use]
    pub fn judge(&self, disks: DiskUse) -> Verdict {
        let above = |percent: Option<u64>, mark: u64| percent.is_some_and(|p| p > mark);
        let any_above = |mark: u64| above(disks.log, mark) || above(disks.queues, mark);
        // A folder that is gone says nothing about space, and 4.9.8 reclaims then.
        let missing = disks.log.is_none() || disks.queues.is_none();
        let refuse = match disks {
            DiskUse {
                log: Some(percent), ..
            } if percent > self.refuse => Some(Full::Log(percent)),
            DiskUse {
                queues: Some(percent),
                ..
            } if percent > self.refuse => Some(Full::Queues(percent)),
            _ => None,
        };
        Verdict {
            space: missing || any_above(self.reclaim),
            immediately: any_above(self.force.min(self.refuse)),
            refuse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_means_more_than() {
        let marks = Watermarks::of(&StoreConfig::new("/s"));
        let judge = |log, queues| {
            let v = marks.judge(DiskUse {
                log: Some(log),
                queues: Some(queues),
            });
            (v.space, v.immediately, v.refuse)
        };
        assert_eq!(judge(75, 10), (false, false, None));
        assert_eq!(judge(76, 10), (true, false, None));
        assert_eq!(judge(85, 10), (true, false, None));
        assert_eq!(judge(86, 10), (true, true, None));
        assert_eq!(judge(90, 10), (true, true, None));
        assert_eq!(judge(91, 10), (true, true, Some(Full::Log(91))));
        assert_eq!(judge(10, 91), (true, true, Some(Full::Queues(91))));
        assert_eq!(judge(10, 80), (true, false, None));
        assert!(marks.judge(DiskUse::default()).space, "a missing folder");
    }
}
