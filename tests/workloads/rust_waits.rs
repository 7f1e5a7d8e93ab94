// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a lock and time that, beside others that wait for messages, for being unparked and for conditions
// whose futexes hold the values of locks. A line on standard input is answered with the nanoseconds of waits for the lock
// so far, of those under way, too.
use std::io::BufRead;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

// Sum of all waits in ns, times 16; the low 4 bits count the waits under way. A wait subtracts its
// start and adds its end, so a reader adds the present time once for each wait under way.
static WAITED: AtomicI64 = AtomicI64::new(0);

fn now_ns(since: Instant) -> i64 {
    since.elapsed().as_nanos() as i64
}

fn waited_ns(since: Instant) -> i64 {
    let sum = WAITED.load(Ordering::Relaxed);
    (sum >> 4) + (sum & 15) * now_ns(since)
}

fn rest() {
    thread::sleep(Duration::from_millis(5));
}

#[inline(never)]
fn wait_lock(lock: &Mutex<u64>, since: Instant) {
    loop {
        WAITED.fetch_sub((now_ns(since) << 4) - 1, Ordering::Relaxed);
        let mut held = lock.lock().unwrap();
        WAITED.fetch_add((now_ns(since) << 4) - 1, Ordering::Relaxed);
        *held += 1;
        rest();
        drop(held);
        rest();
    }
}

#[inline(never)]
fn wait_message(messages: mpsc::Receiver<u64>) {
    for message in messages {
        unsafe { std::ptr::read_volatile(&message) };
    }
}

#[inline(never)]
fn wait_park() {
    loop {
        thread::park();
    }
}

// notify_one() counts up what the next wait expects: 2 is a mutex's value
#[inline(never)]
fn wait_condition() {
    let lock = Mutex::new(0);
    loop {
        let condition = Condvar::new();
        condition.notify_one();
        condition.notify_one();
        let held = lock.lock().unwrap();
        let _ = condition.wait_timeout(held, Duration::from_millis(50));
    }
}

fn main() {
    let since = Instant::now();
    let lock = Arc::new(Mutex::new(0));
    let (sender, receiver) = mpsc::channel();
    for _ in 0..3 {
        let lock = lock.clone();
        thread::spawn(move || wait_lock(&lock, since));
    }
    thread::spawn(move || wait_message(receiver));
    thread::spawn(wait_condition);
    let parked = thread::spawn(wait_park).thread().clone();
    thread::spawn(move || loop {
        rest();
        parked.unpark();
        sender.send(1).unwrap();
    });
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        println!("{}", waited_ns(since));
    }
}
