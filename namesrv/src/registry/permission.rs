//! Taking write permission from a broker before it is stopped, and giving it back (name server spec 8.4, 8.5). In
//! memory only: the next registration that counts as changed brings the broker's own permissions.

use minimq_protocol::perm;

use super::{Change, Registry, TopicQueue};

impl Registry {
    /// Clears the write bit of all queues at a broker name. Says at how many topics there are such queues, those
    /// without the bit included.
    pub fn wipe_write_permission(&mut self, broker: &str) -> (usize, Vec<Change>) {
        self.set_permissions(broker, false, |perm| perm & !perm::WRITE)
    }

    /// Makes all queues at a broker name readable and writable and nothing else, as the original does.
    pub fn add_write_permission(&mut self, broker: &str) -> (usize, Vec<Change>) {
        self.set_permissions(broker, true, |_| perm::READ | perm::WRITE)
    }

    fn set_permissions(
        &mut self,
        broker: &str,
        write: bool,
        change: impl Fn(i32) -> i32,
    ) -> (usize, Vec<Change>) {
        let topics = self.change_queues(
            |_, route| route.queue_of(broker).is_some(),
            |queue| {
                let perm = if &**queue.broker.name() == broker {
                    change(queue.perm)
                } else {
                    queue.perm
                };
                Some(TopicQueue {
                    perm,
                    ..queue.clone()
                })
            },
        );
        if topics == 0 {
            return (0, Vec::new());
        }
        let broker = broker.into();
        (
            topics,
            vec![Change::Permission {
                broker,
                write,
                topics,
            }],
        )
    }
}
