//! What a client sends over HTTP/2, as its bytes come: finds the blocks of header fields in the
//! frames and has them mended. Whatever it does not expect ends the search for good, and the rest
//! goes through as it is. Layouts: RFC 9113, sections 3.4, 4 and 6.

use super::header_block::{HeaderBlockState, Http2ParseError};

/// What a connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The size of a frame's head.
const HEAD: usize = 9;
/// The largest frame that is allowed as long as the server asks for no other.
const MAX_FRAME: usize = 16_384;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Overwrites, in place, what no authority may have in each `:authority` that a client sends.
#[derive(Debug, Default)]
pub struct AuthorityRewriter {
    state: FrameState,
    header_block: HeaderBlockState,
    /// The stream whose block goes on in the next frame.
    continued_stream: Option<[u8; 4]>,
}

/// Where the next byte is.
#[derive(Debug)]
enum FrameState {
    /// In the preface, after so many bytes.
    Preface(usize),
    /// In a frame's head, after so many bytes.
    Head([u8; HEAD], usize),
    /// At the length of a frame's padding; so much follows.
    Padding { priority: usize, rest: usize, ends: bool },
    /// In a frame's payload.
    Payload(FramePayload),
    /// After something that was not expected.
    Unparsable,
}

/// How much is left of each part of a frame's payload.
#[derive(Debug)]
struct FramePayload {
    before: usize,
    block: usize,
    after: usize,
    /// Whether the block ends with this frame.
    ends: bool,
}

impl Default for FrameState {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl AuthorityRewriter {
    /// Goes on with the next bytes of the connection, however they are cut.
    pub fn rewrite(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let Ok(done) = self.advance(bytes) else {
                self.state = FrameState::Unparsable;
                return;
            };
            bytes = &mut bytes[done..];
        }
    }

    /// Goes on with at least one byte; says with how many.
    fn advance(&mut self, bytes: &mut [u8]) -> Result<usize, Http2ParseError> {
        match &mut self.state {
            FrameState::Preface(done) => {
                let now = bytes.len().min(PREFACE.len() - *done);
                if bytes[..now] != PREFACE[*done..][..now] {
                    return Err(Http2ParseError);
                }
                *done += now;
                if *done == PREFACE.len() {
                    self.state = FrameState::new_head();
                }
                Ok(now)
            }
            FrameState::Head(head, done) => {
                let now = bytes.len().min(HEAD - *done);
                head[*done..][..now].copy_from_slice(&bytes[..now]);
                *done += now;
                if *done == HEAD {
                    let head = *head;
                    self.begin_frame(head)?;
                }
                Ok(now)
            }
            &mut FrameState::Padding { priority, rest, ends } => {
                let after = usize::from(bytes[0]);
                let block = rest.checked_sub(priority + after).ok_or(Http2ParseError)?;
                self.enter_payload(FramePayload { before: priority, block, after, ends })?;
                Ok(1)
            }
            FrameState::Payload(payload) => {
                let left = [&mut payload.before, &mut payload.block, &mut payload.after];
                let is_block = *left[0] == 0 && *left[1] > 0;
                let part = left.into_iter().find(|left| **left > 0).ok_or(Http2ParseError)?;
                let now = bytes.len().min(*part);
                *part -= now;
                if is_block {
                    self.header_block.rewrite(&mut bytes[..now])?;
                }
                self.leave_finished_frame()?;
                Ok(now)
            }
            FrameState::Unparsable => Ok(bytes.len()),
        }
    }

    fn begin_frame(&mut self, head: [u8; HEAD]) -> Result<(), Http2ParseError> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let stream = [s0, s1, s2, s3];
        let ends = flags & END_HEADERS != 0;
        let expected = match self.continued_stream {
            Some(of) => kind == CONTINUATION && stream == of,
            None => kind != CONTINUATION && kind != PUSH_PROMISE,
        };
        if length > MAX_FRAME || !expected {
            return Err(Http2ParseError);
        }
        if kind != HEADERS && kind != CONTINUATION {
            return self.enter_payload(FramePayload {
                before: length,
                block: 0,
                after: 0,
                ends: false,
            });
        }
        self.continued_stream = (!ends).then_some(stream);
        let flags = if kind == HEADERS { flags } else { 0 };
        let priority = if flags & PRIORITY != 0 { 5 } else { 0 };
        if flags & PADDED != 0 {
            let rest = length.checked_sub(1).ok_or(Http2ParseError)?;
            self.state = FrameState::Padding { priority, rest, ends };
            return Ok(());
        }
        let block = length.checked_sub(priority).ok_or(Http2ParseError)?;
        self.enter_payload(FramePayload { before: priority, block, after: 0, ends })
    }

    fn enter_payload(&mut self, payload: FramePayload) -> Result<(), Http2ParseError> {
        self.state = FrameState::Payload(payload);
        self.leave_finished_frame()
    }

    /// On to the next frame, if nothing is left of this one.
    fn leave_finished_frame(&mut self) -> Result<(), Http2ParseError> {
        let FrameState::Payload(FramePayload { before: 0, block: 0, after: 0, ends }) = self.state
        else {
            return Ok(());
        };
        if ends && !self.header_block.is_complete() {
            return Err(Http2ParseError);
        }
        self.state = FrameState::new_head();
        Ok(())
    }
}

impl FrameState {
    fn new_head() -> Self {
        Self::Head([0; HEAD], 0)
    }
}

#[cfg(test)]
mod tests;
