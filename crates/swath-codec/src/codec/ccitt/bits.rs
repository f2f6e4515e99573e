//! Reads the bits of a fax stream, with libtiff's rules for its end.

/// A reader of the stream. A copy remembers a position.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    src: &'a [u8],
    /// The next byte to load.
    at: usize,
    /// The loaded bits, from the top down. Below them may be a part of the byte at `at`, which loading overwrites.
    acc: u64,
    loaded: u32,
    order: Order,
    load: Load,
}

/// FillOrder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    MsbFirst,
    LsbFirst,
}

/// How far ahead bytes are loaded. Only [`Bits::align_to_word`] depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Words,
    /// Only the needed bytes, as libtiff does.
    Bytes,
}

impl<'a> Bits<'a> {
    pub(super) fn new(src: &'a [u8], order: Order, load: Load) -> Bits<'a> {
        Bits { src, at: 0, acc: 0, loaded: 0, order, load }
    }

    /// Loads `n` bits for [`peek`](Bits::peek); returns `false` if none is left. If fewer than `n` are left, zeros are appended and count
    /// as bits of the stream from then on. That is libtiff's rule, and it decides which damaged strips it reads.
    #[inline(always)]
    pub(super) fn need(&mut self, n: u32) -> bool {
        self.loaded >= n || self.refill(n)
    }

    #[inline]
    fn refill(&mut self, n: u32) -> bool {
        if self.load == Load::Words
            && let Some(next) = self.src.get(self.at..).and_then(<[u8]>::first_chunk::<8>)
        {
            let word = match self.order {
                Order::MsbFirst => u64::from_be_bytes(*next),
                Order::LsbFirst => u64::from_le_bytes(*next).reverse_bits(),
            };
            // `loaded` < n <= 13, so at least six whole bytes fit.
            self.acc |= word >> self.loaded;
            let bytes = (63 - self.loaded) >> 3;
            self.at += bytes as usize;
            self.loaded += bytes * 8;
            return true;
        }
        while self.loaded < n {
            let Some(&byte) = self.src.get(self.at) else {
                if self.loaded == 0 {
                    return false;
                }
                self.loaded = n;
                break;
            };
            let byte = if self.order == Order::LsbFirst { byte.reverse_bits() } else { byte };
            self.acc |= u64::from(byte) << (56 - self.loaded);
            self.at += 1;
            self.loaded += 8;
        }
        true
    }

    /// Returns the next `n` bits, 1 to 13, that [`need`](Bits::need) loaded.
    #[inline(always)]
    pub(super) fn peek(&self, n: u32) -> usize {
        (self.acc >> (64 - n)) as usize
    }

    /// Skips `n` loaded bits.
    #[inline(always)]
    pub(super) fn skip(&mut self, n: u32) {
        debug_assert!(n <= self.loaded);
        self.acc <<= n;
        self.loaded = self.loaded.saturating_sub(n);
    }

    /// Skips the rest of a byte.
    pub(super) fn align_to_byte(&mut self) {
        self.skip(self.loaded & 7);
    }

    /// Skips the rest of a 16-bit word as libtiff does: it drops loaded bits down to a multiple of 16, and a byte more if that leaves
    /// none and the next byte is odd. That is the word boundary only when an even number of bytes was loaded; else it also skips a word
    /// of the next row. We match libtiff's pixels here too, hence [`Load::Bytes`].
    pub(super) fn align_to_word(&mut self) {
        self.skip(self.loaded & 15);
        if self.loaded == 0 && self.at & 1 == 1 {
            self.at += 1;
        }
    }
}
