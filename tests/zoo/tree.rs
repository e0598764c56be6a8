//! A random tree of processes. Its plan follows from the seed alone, so a process without an environment makes the same
//! plan again.

use nix::unistd::setsid;

use crate::{MOST_DESCRIPTORS, Zoo, close_below, close_streams, ignore_signals, wait_for};

/// Most generations below the leader.
const DEPTH: u32 = 4;
/// Most children of a process.
const WIDTH: u64 = 4;
/// Most processes of a tree.
const MOST_NODES: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    OwnSession,
    NoEnvironment,
    NoDescriptors,
    IgnoresSignals,
    DoubleFork,
}

const HABITS: [Habit; 5] = [
    Habit::OwnSession,
    Habit::NoEnvironment,
    Habit::NoDescriptors,
    Habit::IgnoresSignals,
    Habit::DoubleFork,
];

/// One process below the leader.
#[derive(Debug, Default)]
struct Node {
    habits: Vec<Habit>,
    children: Vec<usize>,
}

/// Makes the tree of `seed`, as its leader.
pub(crate) fn grow(zoo: &Zoo, seed: &str) {
    let plan = plan(seed);
    for child in &plan[0].children {
        start(zoo, &plan, seed, *child);
    }
    zoo.lead(plan.len() - 1);
}

/// Continues as the node with the number `node` after an exec.
pub(crate) fn become_node(zoo: &Zoo, seed: &str, node: &str) {
    let plan = plan(seed);
    let node = node.parse().expect("the number of a node");
    continue_as(zoo, &plan, seed, node);
}

fn start(zoo: &Zoo, plan: &[Node], seed: &str, number: usize) {
    let has = |habit| plan[number].habits.contains(&habit);
    let begin = || {
        if has(Habit::OwnSession) {
            let _session = setsid().expect("a child leads no group");
        }
        if has(Habit::IgnoresSignals) {
            ignore_signals();
        }
        if has(Habit::NoEnvironment) {
            zoo.bare("node", &[seed, &number.to_string()]);
        }
        continue_as(zoo, plan, seed, number);
    };
    if has(Habit::DoubleFork) {
        let between = zoo.child(|| {
            zoo.child(begin);
        });
        wait_for(between);
    } else {
        zoo.child(begin);
    }
}

fn continue_as(zoo: &Zoo, plan: &[Node], seed: &str, number: usize) {
    let node = &plan[number];
    close_streams();
    for child in &node.children {
        start(zoo, plan, seed, *child);
    }
    zoo.ready();
    if node.habits.contains(&Habit::NoDescriptors) {
        close_below(MOST_DESCRIPTORS);
    }
    zoo.sleep()
}

/// Makes the plan of `seed`. The first node is the leader.
fn plan(seed: &str) -> Vec<Node> {
    let mut state: u64 = seed.parse().expect("a seed is a number");
    let mut below = |limit: u64| {
        // The generator splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    };
    let mut plan = vec![Node::default()];
    let mut generation = vec![0];
    for depth in 0..DEPTH {
        let mut next = Vec::new();
        for parent in generation {
            let least = u64::from(depth == 0);
            for _ in 0..least + below(WIDTH + 1 - least) {
                if plan.len() == MOST_NODES {
                    continue;
                }
                plan.push(Node {
                    habits: HABITS.into_iter().filter(|_| below(3) == 0).collect(),
                    children: Vec::new(),
                });
                let number = plan.len() - 1;
                plan[parent].children.push(number);
                next.push(number);
            }
        }
        generation = next;
    }
    plan
}
