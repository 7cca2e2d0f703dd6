//! A semaphore that is fair between groups of requests.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A semaphore that grants permits to the waiting groups in turn, and to the requests of one group in their order. A
/// group with many requests delays another by one permit at most.
#[derive(Debug)]
pub(super) struct FairSemaphore {
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    /// Free permits; none are free while requests wait.
    free: usize,
    /// Groups with waiting requests, in order of their turns.
    waiting: VecDeque<(String, VecDeque<oneshot::Sender<Permit>>)>,
}

/// A permit, which the next request gets on drop.
#[derive(Debug)]
pub(super) struct Permit {
    semaphore: &'static FairSemaphore,
}

impl FairSemaphore {
    /// Returns a semaphore with this number of permits.
    pub(super) const fn new(permits: usize) -> Self {
        Self { queue: Mutex::new(Queue { free: permits, waiting: VecDeque::new() }) }
    }

    /// Waits for a permit. A request ends when the future is dropped. Returns `None` only if the request was lost.
    pub(super) async fn acquire(&'static self, group: &str) -> Option<Permit> {
        let granted = {
            let mut queue = self.queue.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Some(Permit { semaphore: self });
            }
            let (grant, granted) = oneshot::channel();
            queue.push(group, grant);
            granted
        };
        granted.await.ok()
    }
}

impl Queue {
    fn push(&mut self, group: &str, grant: oneshot::Sender<Permit>) {
        if let Some((_, requests)) = self.waiting.iter_mut().find(|(waiting, _)| waiting == group) {
            requests.push_back(grant);
        } else {
            self.waiting.push_back((group.to_owned(), VecDeque::from([grant])));
        }
    }

    /// Removes and returns the next request whose caller still waits. Its group's next turn comes after all others.
    fn pop(&mut self) -> Option<oneshot::Sender<Permit>> {
        while let Some((group, mut requests)) = self.waiting.pop_front() {
            requests.retain(|request| !request.is_closed());
            let Some(next) = requests.pop_front() else { continue };
            if !requests.is_empty() {
                self.waiting.push_back((group, requests));
            }
            return Some(next);
        }
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.semaphore.queue.lock();
            let next = queue.pop();
            if next.is_none() {
                queue.free += 1;
            }
            next
        };
        if let Some(request) = next {
            // If the caller stopped waiting meanwhile, this drops the permit, which goes to the next request.
            drop(request.send(Self { semaphore: self.semaphore }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures::{FutureExt, poll};

    use super::*;

    #[tokio::test]
    async fn groups_take_turns_however_many_requests_each_has() {
        static SEMAPHORE: FairSemaphore = FairSemaphore::new(1);
        let first = SEMAPHORE.acquire("many").await;
        let groups = ["many", "many", "many", "few", "other", "few"];
        let mut requests = groups.map(|group| Some(SEMAPHORE.acquire(group).boxed()));
        for request in requests.iter_mut().flatten() {
            assert!(poll!(request).is_pending());
        }
        // Requests keep their permits, so that each drop grants the next.
        let mut held = first;
        for turn in [0, 3, 4, 1, 5, 2] {
            drop(held.take());
            for (number, request) in requests.iter_mut().enumerate() {
                let Some(request) = request else { continue };
                if let Poll::Ready(permit) = poll!(request) {
                    assert_eq!(number, turn);
                    held = permit;
                }
            }
            assert!(held.is_some());
            requests[turn] = None;
        }
    }

    #[tokio::test]
    async fn permit_of_a_dropped_request_goes_to_the_next() {
        static SEMAPHORE: FairSemaphore = FairSemaphore::new(1);
        let first = SEMAPHORE.acquire("a").await;
        let (mut dropped, mut granted) = (SEMAPHORE.acquire("b").boxed(), SEMAPHORE.acquire("c").boxed());
        let mut last = SEMAPHORE.acquire("a").boxed();
        for request in [&mut dropped, &mut granted, &mut last] {
            assert!(poll!(request).is_pending());
        }
        drop(dropped);
        drop(first);
        // The permit was sent to the second request, which ends without taking it.
        drop(granted);
        assert!(last.now_or_never().flatten().is_some());
        assert!(SEMAPHORE.acquire("d").now_or_never().flatten().is_some(), "it is free again");
    }
}
