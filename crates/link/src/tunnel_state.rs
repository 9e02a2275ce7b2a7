//! State of one side of a tunnel, as a value: bytes and frames go in, bytes and frames come out.

use bytes::{Buf as _, Bytes, BytesMut};
use caproot_core::proto::link::caproot::link::v1::tunnel_frame::Content;
use caproot_core::proto::link::caproot::link::v1::{
    TunnelFin, TunnelFrame, TunnelReset, TunnelResetReason,
};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind};

/// Maximum number of data bytes in a frame.
pub const MAX_DATA_BYTES: usize = 32 << 10;
/// Credit of each direction at the start, which is also the maximum.
pub const WINDOW_BYTES: usize = 256 << 10;
/// Least credit that a frame of data takes, so that the credit also limits the number of frames.
pub const MIN_FRAME_COST: usize = 1 << 10;
/// Credit that is given back in one frame.
const CREDIT_BATCH: usize = WINDOW_BYTES / 4;

/// One side of a tunnel.
///
/// The writer adds bytes, which leave in frames as credit allows. The reader takes an exact prefix
/// of the bytes of the other side. A frame that is not the next frame resets the tunnel.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // each is an end of one direction or of the stream
pub struct TunnelState {
    /// Bytes of the writer that are in no frame yet: at most [`MAX_DATA_BYTES`].
    unsent: BytesMut,
    sent_seq: u64,
    send_credit: usize,
    is_write_closed: bool,
    is_fin_sent: bool,
    /// Bytes for the reader: at most [`WINDOW_BYTES`].
    unread: BytesMut,
    received_seq: u64,
    /// Credit that the other side has.
    receive_credit: usize,
    /// Credit of frames whose bytes the reader has not taken yet, as cost and bytes in order.
    unread_costs: VecDeque<(usize, usize)>,
    /// Credit that can be given back.
    returnable: usize,
    is_fin_received: bool,
    /// Reset of this side that is not sent yet.
    pending_reset: Option<TunnelResetReason>,
    /// Whether the other side or this side has reset the tunnel.
    reset: Option<TunnelResetReason>,
    /// Whether the owner of the stream dropped it.
    is_abandoned: bool,
}

impl Default for TunnelState {
    fn default() -> Self {
        Self {
            unsent: BytesMut::new(),
            sent_seq: 0,
            send_credit: WINDOW_BYTES,
            is_write_closed: false,
            is_fin_sent: false,
            unread: BytesMut::new(),
            received_seq: 0,
            receive_credit: WINDOW_BYTES,
            unread_costs: VecDeque::new(),
            returnable: 0,
            is_fin_received: false,
            pending_reset: None,
            reset: None,
            is_abandoned: false,
        }
    }
}

impl TunnelState {
    /// Takes bytes of the writer. Returns how many were taken; 0 means that the writer must wait.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        if let Some(reason) = self.reset {
            return Err(reset_error(reason));
        }
        if self.is_write_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let taken = bytes
            .len()
            .min(MAX_DATA_BYTES.saturating_sub(self.unsent.len()));
        self.unsent.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// Ends the bytes of the writer.
    pub fn close_write(&mut self) {
        self.is_write_closed = true;
    }

    /// Copies bytes of the other side. `Ok(None)` means that the reader must wait, and `Ok(Some(0))`
    /// for a buffer with room is the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        if !self.unread.is_empty() {
            let taken = buffer.len().min(self.unread.len());
            self.unread.copy_to_slice(&mut buffer[..taken]);
            self.release_credit(taken);
            return Ok(Some(taken));
        }
        // Idle tunnels keep no buffer.
        self.unread = BytesMut::new();
        if self.is_fin_received {
            return Ok(Some(0));
        }
        match self.reset {
            Some(reason) => Err(reset_error(reason)),
            None => Ok(None),
        }
    }

    /// Takes a frame of the other side. Returns whether the tunnel goes on.
    pub fn receive(&mut self, frame: TunnelFrame) -> bool {
        if self.reset.is_some() {
            return false;
        }
        if self.accept(frame).is_none() {
            self.start_reset(TunnelResetReason::Broken);
        }
        self.reset.is_none()
    }

    /// Returns `None` for a frame that is not allowed.
    fn accept(&mut self, frame: TunnelFrame) -> Option<()> {
        if Some(frame.seq) != self.received_seq.checked_add(1) {
            return None;
        }

        self.received_seq = frame.seq;
        match frame.content? {
            Content::Data(data) => {
                let cost = data.len().max(MIN_FRAME_COST);
                if data.is_empty() || data.len() > MAX_DATA_BYTES || self.is_fin_received {
                    return None;
                }
                self.receive_credit = self.receive_credit.checked_sub(cost)?;
                if self.is_abandoned {
                    return Some(());
                }

                self.unread.extend_from_slice(&data);
                self.unread_costs.push_back((cost, data.len()));
            }
            Content::Credit(credit) => {
                let credit = self
                    .send_credit
                    .checked_add(usize::try_from(credit).ok()?)?;
                self.send_credit = (credit <= WINDOW_BYTES).then_some(credit)?;
            }
            Content::Fin(TunnelFin {}) => {
                if self.is_fin_received {
                    return None;
                }
                self.is_fin_received = true;
            }
            Content::Reset(TunnelReset { reason }) => {
                self.reset = Some(reason.try_into().ok()?);
            }
        }

        Some(())
    }

    /// Returns the next frame for the other side, if there is one. At most `MAX_DATA_BYTES` of data
    /// are in a frame.
    pub fn next_frame(&mut self) -> Option<TunnelFrame> {
        if let Some(reason) = self.pending_reset.take() {
            let reset = TunnelReset {
                reason: reason.into(),
            };
            return Some(self.number(Content::Reset(reset)));
        }
        if self.reset.is_some() {
            return None;
        }

        // After its `fin`, the other side sends no more data that needs credit.
        if self.returnable >= CREDIT_BATCH && !self.is_fin_received {
            let credit = std::mem::take(&mut self.returnable);
            self.receive_credit += credit;
            return Some(self.number(Content::Credit(
                u32::try_from(credit).expect("at most a window"),
            )));
        }

        if !self.unsent.is_empty() && self.send_credit >= MIN_FRAME_COST {
            let size = self.unsent.len().min(MAX_DATA_BYTES).min(self.send_credit);
            self.send_credit -= size.max(MIN_FRAME_COST);
            let data = Bytes::copy_from_slice(&self.unsent[..size]);
            self.unsent.advance(size);
            if self.unsent.is_empty() {
                self.unsent = BytesMut::new();
            }
            return Some(self.number(Content::Data(data)));
        }

        if self.unsent.is_empty() && self.is_write_closed && !self.is_fin_sent {
            self.is_fin_sent = true;
            return Some(self.number(Content::Fin(TunnelFin {})));
        }
        if self.is_abandoned && !self.is_complete() {
            // Bytes that wait for credit are dropped, as a closed socket drops them in the end.
            self.start_reset(TunnelResetReason::Closed);
            return self.next_frame();
        }
        None
    }

    /// Records that the owner of the stream dropped it. Frames that are ready are still sent, and
    /// then a reset, unless both directions have ended.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
        self.unread = BytesMut::new();
        self.unread_costs.clear();
    }

    /// Resets the tunnel, and tells the other side.
    pub fn start_reset(&mut self, reason: TunnelResetReason) {
        if self.reset.is_none() {
            self.reset = Some(reason);
            self.pending_reset = Some(reason);
        }
    }

    /// Whether no frame will leave and none is expected: both directions have ended, or the tunnel
    /// is reset and the reset was sent.
    pub fn is_over(&self) -> bool {
        self.is_complete() || self.reset.is_some() && self.pending_reset.is_none()
    }

    /// Returns the reason of a reset.
    #[cfg(test)]
    pub fn reset_reason(&self) -> Option<TunnelResetReason> {
        self.reset
    }

    fn is_complete(&self) -> bool {
        self.is_fin_sent && self.is_fin_received
    }

    fn number(&mut self, content: Content) -> TunnelFrame {
        self.sent_seq += 1;
        TunnelFrame {
            seq: self.sent_seq,
            content: Some(content),
        }
    }

    /// Makes the credit of completely read frames returnable.
    fn release_credit(&mut self, mut taken: usize) {
        while let Some((cost, left)) = self.unread_costs.front_mut() {
            if *left > taken {
                *left -= taken;
                return;
            }
            taken -= *left;
            self.returnable += *cost;
            self.unread_costs.pop_front();
        }
    }
}

fn reset_error(reason: TunnelResetReason) -> Error {
    let text = match reason {
        TunnelResetReason::Unspecified | TunnelResetReason::Closed => {
            "the other side closed the tunnel"
        }
        TunnelResetReason::Broken => "the broker lost, doubled or reordered frames of the tunnel",
        TunnelResetReason::Superseded => "a newer link serves the environment",
        TunnelResetReason::BrokerLost => "the connection to the broker was lost",
        TunnelResetReason::PeerGone => "the other side of the tunnel is gone",
    };
    Error::new(ErrorKind::ConnectionReset, text)
}

#[cfg(test)]
mod tests;
