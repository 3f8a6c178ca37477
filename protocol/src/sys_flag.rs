//! The flag words of messages, pulls, topics and subscriptions (wire spec 7.5).

/// `sysFlag` of a message.
pub mod message {
    /// The body is compressed; the kind is in [`COMPRESSION_MASK`].
    pub const COMPRESSED: i32 = 0x1;
    /// The topic's filter type is MULTI_TAG; set by the broker.
    pub const MULTI_TAGS: i32 = 0x2;
    /// The two transaction bits.
    pub const TRANSACTION_MASK: i32 = 0xC;
    /// Not part of a transaction.
    pub const TRANSACTION_NONE: i32 = 0x0;
    /// A half message.
    pub const TRANSACTION_PREPARED: i32 = 0x4;
    /// A committed message.
    pub const TRANSACTION_COMMIT: i32 = 0x8;
    /// A rolled-back message.
    pub const TRANSACTION_ROLLBACK: i32 = 0xC;
    /// The born host of the record takes 20 bytes instead of 8.
    pub const BORN_HOST_V6: i32 = 0x10;
    /// The store host of the record takes 20 bytes instead of 8.
    pub const STORE_HOST_V6: i32 = 0x20;
    /// Defined for the batch queues of 5.x, unused in 4.x.
    pub const NEED_UNWRAP: i32 = 0x40;
    /// Defined for the batch queues of 5.x, unused in 4.x.
    pub const INNER_BATCH: i32 = 0x80;
    /// The kind of compression, see [`crate::compression::CompressionType`].
    pub const COMPRESSION_MASK: i32 = 0x700;

    /// The transaction bits of `flag`.
    #[must_use]
    pub fn transaction(flag: i32) -> i32 {
        flag & TRANSACTION_MASK
    }

    /// `flag` with its transaction bits replaced by `transaction`.
    #[must_use]
    pub fn with_transaction(flag: i32, transaction: i32) -> i32 {
        flag & !TRANSACTION_MASK | transaction & TRANSACTION_MASK
    }

    /// Whether the body is compressed.
    #[must_use]
    pub fn is_compressed(flag: i32) -> bool {
        flag & COMPRESSED != 0
    }

    /// `flag` without [`COMPRESSED`]; the kind bits stay, as in RocketMQ.
    #[must_use]
    pub fn clear_compressed(flag: i32) -> i32 {
        flag & !COMPRESSED
    }
}

/// `sysFlag` of a pull request.
pub mod pull {
    /// The header's commit offset is to be stored.
    pub const COMMIT_OFFSET: i32 = 0x1;
    /// The broker may hold the pull while there is nothing to return.
    pub const SUSPEND: i32 = 0x2;
    /// The subscription text is in this request.
    pub const SUBSCRIPTION: i32 = 0x4;
    /// Filter by class: the pull belongs to a filter server.
    pub const CLASS_FILTER: i32 = 0x8;
    /// Sent by a lite-pull consumer; changes nothing in a 4.x broker.
    pub const LITE_PULL: i32 = 0x10;

    /// Builds the word from its bits.
    #[must_use]
    pub fn build(
        commit_offset: bool,
        suspend: bool,
        subscription: bool,
        class_filter: bool,
        lite_pull: bool,
    ) -> i32 {
        let bit = |set: bool, mask: i32| if set { mask } else { 0 };
        bit(commit_offset, COMMIT_OFFSET)
            | bit(suspend, SUSPEND)
            | bit(subscription, SUBSCRIPTION)
            | bit(class_filter, CLASS_FILTER)
            | bit(lite_pull, LITE_PULL)
    }

    /// Whether any bit of `mask` is set in `flag`.
    #[must_use]
    pub fn has(flag: i32, mask: i32) -> bool {
        flag & mask != 0
    }

    /// `flag` without [`COMMIT_OFFSET`].
    #[must_use]
    pub fn clear_commit_offset(flag: i32) -> i32 {
        flag & !COMMIT_OFFSET
    }
}

/// `topicSysFlag` of a topic.
pub mod topic {
    /// The topic belongs to a unit.
    pub const UNIT: i32 = 0x1;
    /// The topic is subscribed to by a unit.
    pub const UNIT_SUB: i32 = 0x2;

    /// Builds the word from its bits.
    #[must_use]
    pub fn build(unit: bool, unit_sub: bool) -> i32 {
        let unit = if unit { UNIT } else { 0 };
        if unit_sub { unit | UNIT_SUB } else { unit }
    }

    /// Whether any bit of `mask` is set in `flag`.
    #[must_use]
    pub fn has(flag: i32, mask: i32) -> bool {
        flag & mask != 0
    }
}

/// `sysFlag` of a subscription; not used on the wire.
pub mod subscription {
    /// The subscriber belongs to a unit.
    pub const UNIT: i32 = 0x1;
}
