//! What a client sends over HTTP/2, as its bytes come: finds the blocks of header fields in the
//! frames and has them mended. Whatever it does not expect ends the search for good, and the rest
//! goes through as it is. Layouts: RFC 9113, sections 3.4, 4 and 6.

use super::block::{Block, Doubt};

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
pub struct Mender {
    place: Place,
    block: Block,
    /// The stream whose block goes on in the next frame.
    goes_on: Option<[u8; 4]>,
}

/// Where the next byte is.
#[derive(Debug)]
enum Place {
    /// In the preface, after so many bytes.
    Preface(usize),
    /// In a frame's head, after so many bytes.
    Head([u8; HEAD], usize),
    /// At the length of a frame's padding; so much follows.
    Padding { priority: usize, rest: usize, ends: bool },
    /// In a frame's payload.
    Payload(Payload),
    /// After something that was not expected.
    Lost,
}

/// How much is left of each part of a frame's payload.
#[derive(Debug)]
struct Payload {
    before: usize,
    block: usize,
    after: usize,
    /// Whether the block ends with this frame.
    ends: bool,
}

impl Default for Place {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl Mender {
    /// Goes on with the next bytes of the connection, however they are cut.
    pub fn mend(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let Ok(done) = self.step(bytes) else {
                self.place = Place::Lost;
                return;
            };
            bytes = &mut bytes[done..];
        }
    }

    /// Goes on with at least one byte; says with how many.
    fn step(&mut self, bytes: &mut [u8]) -> Result<usize, Doubt> {
        match &mut self.place {
            Place::Preface(done) => {
                let now = bytes.len().min(PREFACE.len() - *done);
                if bytes[..now] != PREFACE[*done..][..now] {
                    return Err(Doubt);
                }
                *done += now;
                if *done == PREFACE.len() {
                    self.place = Place::head();
                }
                Ok(now)
            }
            Place::Head(head, done) => {
                let now = bytes.len().min(HEAD - *done);
                head[*done..][..now].copy_from_slice(&bytes[..now]);
                *done += now;
                if *done == HEAD {
                    let head = *head;
                    self.begin(head)?;
                }
                Ok(now)
            }
            &mut Place::Padding { priority, rest, ends } => {
                let after = usize::from(bytes[0]);
                let block = rest.checked_sub(priority + after).ok_or(Doubt)?;
                self.enter(Payload { before: priority, block, after, ends })?;
                Ok(1)
            }
            Place::Payload(payload) => {
                let left = [&mut payload.before, &mut payload.block, &mut payload.after];
                let is_block = *left[0] == 0 && *left[1] > 0;
                let part = left.into_iter().find(|left| **left > 0).ok_or(Doubt)?;
                let now = bytes.len().min(*part);
                *part -= now;
                if is_block {
                    self.block.mend(&mut bytes[..now])?;
                }
                self.leave()?;
                Ok(now)
            }
            Place::Lost => Ok(bytes.len()),
        }
    }

    fn begin(&mut self, head: [u8; HEAD]) -> Result<(), Doubt> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let stream = [s0, s1, s2, s3];
        let ends = flags & END_HEADERS != 0;
        let expected = match self.goes_on {
            Some(of) => kind == CONTINUATION && stream == of,
            None => kind != CONTINUATION && kind != PUSH_PROMISE,
        };
        if length > MAX_FRAME || !expected {
            return Err(Doubt);
        }
        if kind != HEADERS && kind != CONTINUATION {
            return self.enter(Payload { before: length, block: 0, after: 0, ends: false });
        }
        self.goes_on = (!ends).then_some(stream);
        let flags = if kind == HEADERS { flags } else { 0 };
        let priority = if flags & PRIORITY != 0 { 5 } else { 0 };
        if flags & PADDED != 0 {
            let rest = length.checked_sub(1).ok_or(Doubt)?;
            self.place = Place::Padding { priority, rest, ends };
            return Ok(());
        }
        let block = length.checked_sub(priority).ok_or(Doubt)?;
        self.enter(Payload { before: priority, block, after: 0, ends })
    }

    fn enter(&mut self, payload: Payload) -> Result<(), Doubt> {
        self.place = Place::Payload(payload);
        self.leave()
    }

    /// On to the next frame, if nothing is left of this one.
    fn leave(&mut self) -> Result<(), Doubt> {
        let Place::Payload(Payload { before: 0, block: 0, after: 0, ends }) = self.place else {
            return Ok(());
        };
        if ends && !self.block.is_whole() {
            return Err(Doubt);
        }
        self.place = Place::head();
        Ok(())
    }
}

impl Place {
    fn head() -> Self {
        Self::Head([0; HEAD], 0)
    }
}

#[cfg(test)]
mod tests;
