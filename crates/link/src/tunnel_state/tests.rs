//! Laws of a tunnel on a broker that loses, doubles and reorders frames.

use super::{MIN_FRAME_COST, TunnelState, WINDOW_BYTES};
use bytes::Bytes;
use caproot_core::proto::link::caproot::link::v1::tunnel_frame::Content;
use caproot_core::proto::link::caproot::link::v1::{TunnelFin, TunnelFrame, TunnelResetReason};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Fault of the broker, when a frame is delivered.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    Lose,
    Double,
    /// The frame comes after the next frame.
    Swap,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        12 => Just(Fault::None),
        1 => Just(Fault::Lose),
        1 => Just(Fault::Double),
        1 => Just(Fault::Swap),
    ]
}

/// Step of a run.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write(usize),
    Read(usize),
    Send,
    Deliver(Fault),
    DeliverBack,
}

fn step(fault: impl Strategy<Value = Fault>) -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..40_000_usize).prop_map(Step::Write),
        (1..40_000_usize).prop_map(Step::Read),
        Just(Step::Send),
        fault.prop_map(Step::Deliver),
        Just(Step::DeliverBack),
    ]
}

/// One direction of a tunnel through a broker.
#[derive(Default)]
struct Run {
    writer: TunnelState,
    reader: TunnelState,
    forth: VecDeque<TunnelFrame>,
    back: VecDeque<TunnelFrame>,
    written: Vec<u8>,
    read: Vec<u8>,
    /// Number of the frame that was delivered last.
    delivered: u64,
    /// Whether a frame was lost, or was delivered twice or out of order.
    is_faulty: bool,
}

impl Run {
    fn run(&mut self, step: Step) {
        match step {
            Step::Write(size) => {
                let start = self.written.len();
                let bytes: Vec<u8> = (start..start + size)
                    .map(|n| u8::try_from(n % 251).expect("a byte"))
                    .collect();
                if let Ok(taken) = self.writer.write(&bytes) {
                    self.written.extend_from_slice(&bytes[..taken]);
                }
            }
            Step::Read(size) => {
                let mut buffer = vec![0; size];
                if let Ok(Some(taken)) = self.reader.read(&mut buffer) {
                    self.read.extend_from_slice(&buffer[..taken]);
                }
            }
            Step::Send => {
                self.forth.extend(self.writer.next_frame());
                self.back.extend(self.reader.next_frame());
            }
            Step::Deliver(fault) => {
                let Some(frame) = self.forth.pop_front() else {
                    return;
                };
                match fault {
                    Fault::None => {
                        // Two swaps can restore the order.
                        self.is_faulty |= frame.seq != self.delivered + 1;
                        self.delivered = frame.seq;
                        self.reader.receive(frame);
                    }
                    Fault::Lose => self.is_faulty = true,
                    Fault::Double => {
                        self.is_faulty = true;
                        self.reader.receive(frame.clone());
                        self.reader.receive(frame);
                    }
                    Fault::Swap => {
                        let at = self.forth.len().min(1);
                        self.forth.insert(at, frame);
                    }
                }
            }
            Step::DeliverBack => {
                if let Some(frame) = self.back.pop_front() {
                    self.writer.receive(frame);
                }
            }
        }
    }

    /// Delivers everything without faults, and reads to the end.
    fn finish(&mut self) {
        self.writer.close_write();
        loop {
            let before = (self.read.len(), self.forth.len(), self.back.len());
            for _ in 0..64 {
                for step in [Step::Send, Step::Deliver(Fault::None), Step::DeliverBack] {
                    self.run(step);
                }
                self.run(Step::Read(70_000));
            }
            if before == (self.read.len(), self.forth.len(), self.back.len()) {
                return;
            }
        }
    }
}

proptest! {
    /// Law: the reader gets an exact prefix of the written bytes. If a frame was lost, doubled or
    /// reordered, the next frame resets the tunnel; otherwise the reader gets all bytes.
    #[test]
    fn any_fault_delivers_an_exact_prefix_and_then_a_reset(steps in vec(step(fault()), 0..400)) {
        let mut run = Run::default();
        for step in steps {
            run.run(step);
            prop_assert!(run.written.starts_with(&run.read));
        }
        run.finish();
        prop_assert!(run.written.starts_with(&run.read));
        let reset = run.reader.reset_reason();
        if run.is_faulty {
            prop_assert_eq!(reset, Some(TunnelResetReason::Broken));
            prop_assert_eq!(run.writer.reset_reason(), Some(TunnelResetReason::Broken));
            prop_assert!(run.reader.read(&mut [0; 8]).is_err());
            prop_assert!(run.writer.write(b"x").is_err());
        } else {
            prop_assert_eq!(reset, None);
            prop_assert_eq!(&run.written, &run.read);
            prop_assert_eq!(run.reader.read(&mut [0; 8]).expect("no reset"), Some(0));
        }
    }

    /// Law: bytes in flight and unread bytes are never more than the window, and frames in flight
    /// are never more than a subscription queues.
    #[test]
    fn credit_never_exceeds_the_window(steps in vec(step(Just(Fault::None)), 0..600)) {
        let mut run = Run::default();
        for step in steps {
            run.run(step);
            let in_flight: usize = run.forth.iter().map(|frame| match &frame.content {
                Some(Content::Data(data)) => data.len().max(MIN_FRAME_COST),
                _ => 0,
            }).sum();
            prop_assert!(in_flight + run.reader.unread.len() <= WINDOW_BYTES);
            prop_assert!(run.writer.send_credit <= WINDOW_BYTES);
            prop_assert!(run.reader.receive_credit <= WINDOW_BYTES);
            prop_assert!(run.forth.len() + run.back.len() <= crate::MAX_QUEUED_MESSAGES);
        }
    }

    /// Law: frames of any content never panic, and never make the state larger than the window.
    #[test]
    fn hostile_frames_reset_the_tunnel(
        frames in vec((0..6_u64, 0..5_u8, 0..40_000_usize, any::<u32>()), 0..60),
    ) {
        let mut state = TunnelState::default();
        for (seq, kind, size, number) in frames {
            let content = match kind {
                0 => None,
                1 => Some(Content::Data(Bytes::from(vec![7; size]))),
                2 => Some(Content::Credit(number)),
                3 => Some(Content::Fin(TunnelFin {})),
                _ => Some(Content::Data(Bytes::from(vec![7; 1 + size % 100]))),
            };
            state.receive(TunnelFrame { seq: state.received_seq + seq.min(1), content });
            prop_assert!(state.unread.len() <= WINDOW_BYTES && state.send_credit <= WINDOW_BYTES);
            prop_assert!(state.unread_costs.len() <= WINDOW_BYTES / MIN_FRAME_COST);
        }
    }
}

#[test]
fn a_sender_without_credit_is_reset() {
    let mut state = TunnelState::default();
    let frames = WINDOW_BYTES / MIN_FRAME_COST;
    for seq in 1..=frames as u64 {
        let content = Some(Content::Data(Bytes::from_static(b"x")));
        assert!(state.receive(TunnelFrame { seq, content }));
    }
    let content = Some(Content::Data(Bytes::from_static(b"x")));
    assert!(!state.receive(TunnelFrame {
        seq: frames as u64 + 1,
        content
    }));
    assert_eq!(state.reset_reason(), Some(TunnelResetReason::Broken));
}

#[test]
fn an_abandoned_side_sends_its_bytes_and_a_reset() {
    let (mut one, mut other) = (TunnelState::default(), TunnelState::default());
    assert_eq!(one.write(b"bye").expect("a tunnel"), 3);
    one.abandon();
    while let Some(frame) = one.next_frame() {
        other.receive(frame);
    }
    assert!(one.is_over());
    let mut buffer = [0; 8];
    assert_eq!(other.read(&mut buffer).expect("the bytes"), Some(3));
    assert!(other.read(&mut buffer).is_err());
    assert_eq!(other.reset_reason(), Some(TunnelResetReason::Closed));
}

#[test]
fn two_ends_complete_a_tunnel() {
    let (mut one, mut other) = (TunnelState::default(), TunnelState::default());
    one.close_write();
    other.close_write();
    let (a, b) = (
        one.next_frame().expect("an end"),
        other.next_frame().expect("an end"),
    );
    assert!(one.receive(b) && other.receive(a));
    assert!(one.is_over() && other.is_over());
    one.abandon();
    assert_eq!((one.next_frame(), one.reset_reason()), (None, None));
}
