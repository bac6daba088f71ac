//! The ends as tasks of a runtime.
#![cfg(feature = "tokio")]

use pageferry::tasks::{AsyncReceiver, AsyncSender};
use pageferry::*;

#[test]
fn tasks_on_several_threads_send_and_receive() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for channel in 0..4u8 {
            let (tx, rx) = Channel::pair(Config::new().slots(2).slot_bytes(1).capacity(2)).unwrap();
            let (mut tx, mut rx) = (AsyncSender::new(tx).unwrap(), AsyncReceiver::new(rx).unwrap());
            tasks.push(tokio::spawn(async move {
                for round in 0..200u32 {
                    let mut buffer = tx.buffer(5000).await.unwrap();
                    buffer.fill(round as u8 ^ channel);
                    if round.is_multiple_of(3) {
                        tx.copy(&round.to_ne_bytes()).await.unwrap();
                    }
                    let lent = tx.loan(buffer).await.unwrap();
                    if round.is_multiple_of(2) {
                        assert_eq!(tx.home(lent).await.unwrap()[0], round as u8 ^ channel);
                    }
                }
            }));
            tasks.push(tokio::spawn(async move {
                for round in 0..200u32 {
                    if round.is_multiple_of(3) {
                        assert_eq!(*rx.recv().await.unwrap(), round.to_ne_bytes());
                    }
                    let loan = rx.recv().await.unwrap();
                    tokio::task::yield_now().await;
                    assert!(loan.iter().all(|&byte| byte == round as u8 ^ channel));
                }
                assert!(matches!(rx.recv().await, Err(Error::Peer(PeerFault::Dead))));
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_future_that_is_dropped_has_taken_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (tx, rx) = Channel::pair(Config::new().slots(2).slot_bytes(1)).unwrap();
        let mut rx = AsyncReceiver::new(rx).unwrap();
        for round in 0..50u32 {
            tokio::select! {
                biased;
                _ = rx.recv() => panic!("nothing was sent"),
                () = tokio::task::yield_now() => (),
            }
            tx.copy(&round.to_ne_bytes()).unwrap();
            assert_eq!(*rx.recv().await.unwrap(), round.to_ne_bytes());
        }
    });
}

#[test]
fn a_task_that_waits_for_memory_gets_what_another_drops() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (tx, rx) = Channel::pair(Config::new().slots(2).slot_bytes(1)).unwrap();
        let mut tx = AsyncSender::new(tx).unwrap();
        let buffer = tx.buffer(1).await.unwrap();
        let lent = tx.loan(buffer).await.unwrap();
        let held = rx.recv().unwrap();
        for _ in 0..20 {
            let buffer = tx.buffer(1).await.unwrap();
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                drop(buffer);
            });
            let patience = std::time::Duration::from_secs(120);
            drop(tokio::time::timeout(patience, tx.buffer(1)).await.expect("it is woken").unwrap());
        }
        drop((held, lent));
    });
}

/// A task and a thread of one sender wait: the one that wakes leaves the other to be woken.
#[test]
fn a_task_and_a_thread_wait_for_one_receiver() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..50 {
            let (tx, rx) =
                Channel::pair(Config::new().slots(2).slot_bytes(1).spin(std::time::Duration::ZERO)).unwrap();
            let mut tx = AsyncSender::new(tx).unwrap();
            let buffers = [tx.buffer(1).await.unwrap(), tx.buffer(1).await.unwrap()];
            let mut lent = Vec::new();
            for buffer in buffers {
                lent.push(tx.loan(buffer).await.unwrap());
            }
            let (second, first) = (lent.pop().unwrap(), lent.pop().unwrap());
            let thread = std::thread::spawn(move || drop(first.wait().unwrap()));
            let task = tokio::spawn(async move {
                drop(tx.home(second).await.unwrap());
                tx
            });
            let (one, other) = (rx.recv().unwrap(), rx.recv().unwrap());
            drop(one);
            let patience = std::time::Duration::from_secs(120);
            let joined = tokio::task::spawn_blocking(move || thread.join().unwrap());
            tokio::time::timeout(patience, joined).await.expect("the thread is woken").unwrap();
            drop(other);
            drop(tokio::time::timeout(patience, task).await.expect("the task is woken").unwrap());
        }
    });
}

/// Both ends in one thread, over a socket that is full after a few messages, and with a budget that is used up: a
/// sender that kept the thread would keep the receiver from making room.
#[test]
fn a_task_that_sends_sealed_memory_waits_for_room_without_its_thread() {
    const MESSAGES: u64 = 40;
    let sends = |budget: u64, holds: bool| {
        let (ours, theirs) = Channel::sockets().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 0).unwrap();
        let config = Config::new().slots(1).slot_bytes(1).require_level(Level::Sealed).budget(budget);
        let sender = std::thread::spawn(move || Channel::sender(ours, config).unwrap());
        let rx = Channel::receiver(theirs, Config::new()).unwrap();
        let tx = sender.join().unwrap();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (mut tx, mut rx) = (AsyncSender::new(tx).unwrap(), AsyncReceiver::new(rx).unwrap());
                let sends = tokio::spawn(async move {
                    for number in 0..MESSAGES {
                        let mut buffer = tx.buffer(8).await.unwrap();
                        buffer.copy_from_slice(&number.to_ne_bytes());
                        drop(tx.loan(buffer).await.unwrap());
                    }
                });
                let mut held = Vec::new();
                for number in 0..MESSAGES {
                    let loan = rx.recv().await.unwrap();
                    assert_eq!(*loan, number.to_ne_bytes());
                    held.extend(holds.then_some(loan));
                }
                sends.await.unwrap();
            });
            done.send(()).unwrap();
        });
        ended.recv_timeout(std::time::Duration::from_secs(120)).expect("it waits as a task does");
    };
    // All that is sent is held, so nothing comes back that would wake the sender.
    sends(1 << 30, true);
    // There is room for two beside the pool.
    sends((2 << 20) + 8192, false);
}
