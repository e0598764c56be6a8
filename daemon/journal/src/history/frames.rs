//! Writes the frames of a section.

use std::io;

use rye_core::frame::Frame;
use rye_core::id::Lsn;

use super::directory::Block;
use super::faults::Faults;
use super::file::{Extent, HistoryFile};
use super::payload::Encoder;

/// Writes the frames of one section, or of a table.
pub(super) struct FrameWriter<'w> {
    pub(super) file: &'w HistoryFile,
    pub(super) faults: &'w Faults,
    pub(super) encoder: &'w mut Encoder,
    pub(super) lsn: Lsn,
    pub(super) durable: Lsn,
    /// Offset of the next frame.
    pub(super) offset: u64,
    /// Blocks written so far.
    pub(super) blocks: Vec<Block>,
}

impl FrameWriter<'_> {
    pub(super) fn write_block(&mut self, text: &[u8]) -> io::Result<()> {
        let extent = self.write(text)?;
        self.blocks.push(Block::new(extent, text)?);
        Ok(())
    }

    /// Writes `block`, which has this payload in another section.
    pub(super) fn copy_block(&mut self, block: Block, payload: &[u8]) -> io::Result<()> {
        let extent = self.write_frame(payload)?;
        self.blocks.push(block.moved(extent));
        Ok(())
    }

    /// Writes `block`, whose frame is damaged, byte for byte: a new checksum would hide the damage.
    pub(super) fn copy_damaged(&mut self, block: Block, frame: &[u8]) -> io::Result<()> {
        let extent = self.write_bytes(frame)?;
        self.blocks.push(block.moved(extent));
        Ok(())
    }

    pub(super) fn write(&mut self, text: &[u8]) -> io::Result<Extent> {
        let payload = self.encoder.encode(text)?;
        self.write_frame(&payload)
    }

    fn write_frame(&mut self, payload: &[u8]) -> io::Result<Extent> {
        let frame = Frame {
            segment: self.file.segment(),
            lsn: self.lsn,
            durable: self.durable,
            payload,
        };
        let mut bytes = Vec::with_capacity(frame.encoded_len());
        frame.encode(&mut bytes);
        self.write_bytes(&bytes)
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<Extent> {
        let extent = Extent {
            offset: self.offset,
            bytes: u32::try_from(bytes.len()).map_err(io::Error::other)?,
        };
        self.faults.write(&self.file.file, bytes, self.offset)?;
        self.offset = extent.end();
        Ok(extent)
    }
}
