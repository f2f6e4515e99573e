//! A source over bytes in memory.

use std::sync::Arc;

use crate::source::{ReadInto, Source, SourceError};

/// A source over bytes in memory.
#[derive(Clone)]
pub struct MemorySource {
    name: String,
    bytes: Arc<[u8]>,
}

impl MemorySource {
    /// A source over `bytes`, called `name` in messages.
    pub fn new(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

impl std::fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemorySource").field("name", &self.name).field("len", &self.bytes.len()).finish()
    }
}

impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, SourceError> {
        Ok(self.bytes.len() as u64)
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        for read in reads {
            let found = usize::try_from(read.offset)
                .ok()
                .and_then(|start| Some(start..start.checked_add(read.buffer.len())?))
                .and_then(|range| self.bytes.get(range));
            match found {
                Some(found) => read.buffer.copy_from_slice(found),
                None => {
                    return Err(SourceError::BeyondEnd {
                        offset: read.offset,
                        len: read.buffer.len() as u64,
                        size: self.bytes.len() as u64,
                    });
                }
            }
        }
        Ok(())
    }
}
