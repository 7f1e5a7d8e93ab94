// SPDX-License-Identifier: Apache-2.0
// See truth_plain.c.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

extern "C" {
    fn clock() -> i64;
    fn rand() -> i32;
}

/// std::hint has one since 1.66; Debian 12's compiler is 1.63.
#[inline(always)]
fn black_box<T: Copy>(value: T) -> T {
    unsafe { std::ptr::read_volatile(&value) }
}

static UNIT: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn spin(turns: u64) {
    let mut x: u64 = black_box(1);
    for _ in 0..turns {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    }
    black_box(x);
}

#[inline(always)]
fn unit() -> u64 {
    UNIT.load(Relaxed)
}

mod deep {
    #[inline(never)]
    pub fn leaf_a() {
        super::spin(6 * super::unit());
    }

    #[inline(never)]
    pub fn leaf_b() {
        super::spin(4 * super::unit());
    }

    #[inline(never)]
    pub fn chain_a(depth: u32) -> u32 {
        let local = super::black_box(depth);
        if depth == 1 {
            leaf_a();
        } else {
            chain_a(depth - 1);
        }
        super::black_box(local)
    }

    #[inline(never)]
    pub fn chain_b(depth: u32) -> u32 {
        let local = super::black_box(depth);
        if depth == 1 {
            leaf_b();
        } else {
            chain_b(depth - 1);
        }
        super::black_box(local)
    }
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(5.0);
    // SAFETY: clock() and rand() of the C library take and keep nothing.
    while (unsafe { clock() } as f64) < seconds * 1e6 {
        UNIT.store(1000 + unsafe { rand() } as u64 % 18000, Relaxed);
        deep::chain_a(20);
        deep::chain_b(5);
    }
}
