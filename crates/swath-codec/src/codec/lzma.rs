//! LZMA2 in an xz container (compression 34925).

use std::sync::Arc;

use liblzma::stream::{Action, Check, Error, Filters, LzmaOptions, Status, Stream};
use swath_tiff::structure::Predictor;

use crate::{
    decode::{Decode, Fill},
    encode::{Encode, Settings, within},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// LZMA2 in an xz container. The delta filter that libtiff puts before the compressor is part of the container.
#[derive(Debug, Clone, Copy)]
pub struct Lzma;

impl Decode for Lzma {
    fn decode(
        &self,
        spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        let wanted = dst.len() as u64;
        // Nearly all of it is the dictionary. The strongest preset of xz takes 65 MiB; the format goes up to 4 GiB, and the
        // header of a stream is enough to make the decoder allocate it.
        let allowed = spec.limits.plausible(src.len() as u64).min(spec.limits.tile_bytes);
        let failed = |error: &Error, at: u64| failed(error, at, allowed);
        let mut stream = Stream::new_stream_decoder(allowed, 0).map_err(|error| failed(&error, 0))?;
        while stream.total_out() < wanted {
            let (read, made) = (stream.total_in(), stream.total_out());
            let input = src.get(read as usize..).unwrap_or_default();
            let output = dst.get_mut(made as usize..).unwrap_or_default();
            let status = stream.process(input, output, Action::Run).map_err(|error| failed(&error, read))?;
            let stuck = (read, made) == (stream.total_in(), stream.total_out());
            if stream.total_out() < wanted && (status == Status::StreamEnd || stuck) {
                return Err(CodecError::Short { codec: "LZMA", got: stream.total_out(), wanted });
            }
            if status == Status::StreamEnd {
                return Ok(Fill::Exact);
            }
        }
        // The tile is full, but the check of the stream stands behind the last sample. One byte of room tells an end
        // from a surplus. A stream that was cut off behind its last sample passes, as it does in libtiff.
        loop {
            let read = stream.total_in();
            let input = src.get(read as usize..).unwrap_or_default();
            let status = stream.process(input, &mut [0], Action::Finish);
            if stream.total_out() > wanted {
                return Ok(Fill::Surplus);
            }
            match status {
                Ok(Status::StreamEnd) => return Ok(Fill::Exact),
                Ok(_) if stream.total_in() == read => return Ok(Fill::Exact),
                Ok(_) => {}
                Err(error) => return Err(failed(&error, read)),
            }
        }
    }
}

fn failed(error: &Error, at: u64, allowed: u64) -> CodecError {
    match error {
        // liblzma knows what the stream asked for, but the binding has no way to ask.
        Error::MemLimit => CodecError::OverLimit { codec: "LZMA", allowed },
        Error::Mem => CodecError::LibraryMemory { codec: "LZMA" },
        error => CodecError::corrupt("LZMA", format!("{error} near byte {at} of the tile")),
    }
}

/// LZMA2 at one preset of xz.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    preset: u32,
}

/// An encoder at the preset `settings.level`, 0 to 9; 6 unless set.
///
/// # Errors
/// When the level is another.
pub fn encoder(_spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(Encoder { preset: within("LZMA", "level", settings.level, 6, 0..=9)? }))
}

impl Encode for Encoder {
    /// Bytes that do not get shorter are stored in pieces of up to 64 KiB behind three bytes each; the rest is for the
    /// container: its header, one block's, the check, the index and the footer.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        let len = spec.stored_len(rows);
        len + len / 1024 + 256
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let failed = |error: Error| CodecError::encode("LZMA", error.to_string());
        let mut options = LzmaOptions::new_preset(self.preset).map_err(failed)?;
        // Preset 6 makes tables for a dictionary of 8 MiB, nearly 100 MiB in all. A tile has no use for a dictionary
        // longer than itself.
        let longest = match self.preset {
            0 => 1 << 18,
            1 => 1 << 20,
            2 => 1 << 21,
            3 | 4 => 1 << 22,
            5 | 6 => 1 << 23,
            preset => 1 << (17 + preset),
        };
        options.dict_size(u32::try_from(src.len()).unwrap_or(u32::MAX).clamp(4096, longest));
        let mut filters = Filters::new();
        // libtiff always puts a delta filter with the distance of one sample before LZMA2. Behind a predictor it would
        // take differences of differences, and the container says which filters it has.
        if spec.predictor == Predictor::None {
            let distance = if spec.bits.is_multiple_of(8) { (spec.bits / 8).clamp(1, 256) } else { 1 };
            filters.delta_properties(&[(distance - 1) as u8]).map_err(failed)?;
        }
        filters.lzma2(&options);
        let mut stream = Stream::new_stream_encoder(&filters, Check::Crc32).map_err(failed)?;
        let start = dst.len();
        dst.reserve(self.max_encoded_len(spec, rows));
        loop {
            let rest = src.get(stream.total_in() as usize..).unwrap_or_default();
            let status = stream.process_vec(rest, dst, Action::Finish);
            match status {
                Ok(Status::StreamEnd) => return Ok(()),
                Ok(_) if dst.len() < dst.capacity() => {}
                Ok(_) => {
                    dst.truncate(start);
                    return Err(CodecError::encode("LZMA", "the stream is longer than it can be"));
                }
                Err(error) => {
                    dst.truncate(start);
                    return Err(failed(error));
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codec::testing::{self, spec};
    use swath_tiff::SampleType;

    fn pack(bytes: &[u8], filters: &Filters) -> Vec<u8> {
        let mut stream = Stream::new_stream_encoder(filters, Check::Crc32).unwrap();
        let mut out = Vec::with_capacity(bytes.len() * 2 + 1000);
        while stream.process_vec(bytes.get(stream.total_in() as usize..).unwrap(), &mut out, Action::Finish).unwrap()
            != Status::StreamEnd
        {}
        out
    }

    fn filters(dictionary: u32) -> Filters {
        let mut options = LzmaOptions::new_preset(1).unwrap();
        options.dict_size(dictionary);
        let mut filters = Filters::new();
        filters.lzma2(&options);
        filters
    }

    #[test]
    fn exact_surplus_and_short_streams() {
        let bytes = testing::ramp(1000);
        let packed = pack(&bytes, &filters(1 << 16));
        let spec = spec(SampleType::U8, 1, 100);
        for (room, want) in [(1000, Ok(Fill::Exact)), (999, Ok(Fill::Surplus)), (1, Ok(Fill::Surplus))] {
            let mut dst = vec![0; room];
            assert_eq!(Lzma.decode(&spec, 10, &packed, &mut dst, &mut Scratch::default()), want);
            assert_eq!(dst, bytes[..room]);
        }
        let mut dst = vec![0; 1001];
        let error = Lzma.decode(&spec, 10, &packed, &mut dst, &mut Scratch::default());
        assert_eq!(error, Err(CodecError::Short { codec: "LZMA", got: 1000, wanted: 1001 }));
    }

    #[test]
    fn delta_filter_of_libtiff() {
        // libtiff stands a delta filter with the distance of one sample before LZMA2.
        let bytes = testing::ramp(1000);
        let mut filters = Filters::new();
        filters.delta_properties(&[1]).unwrap();
        filters.lzma2(&LzmaOptions::new_preset(1).unwrap());
        let packed = pack(&bytes, &filters);
        let mut dst = vec![0; 1000];
        assert_eq!(
            Lzma.decode(&spec(SampleType::U8, 1, 100), 10, &packed, &mut dst, &mut Scratch::default()),
            Ok(Fill::Exact)
        );
        assert_eq!(dst, bytes);
    }

    #[test]
    fn refuses_a_dictionary_beyond_the_limit() {
        let packed = pack(&testing::ramp(1000), &filters(1 << 16));
        // The dictionary size is one byte of the block header; the header's CRC-32 has to follow it.
        let mut block = packed[12..24].to_vec();
        let at = block.windows(2).position(|pair| pair == [0x21, 1]).unwrap() + 2;
        block[at] = 40;
        let mut crc = !0_u32;
        for byte in &block[..8] {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            }
        }
        block[8..12].copy_from_slice(&(!crc).to_le_bytes());
        let mut greedy = packed.clone();
        greedy[12..24].copy_from_slice(&block);
        let error = Lzma.decode(&spec(SampleType::U8, 1, 100), 10, &greedy, &mut [0; 1000], &mut Scratch::default());
        let error = error.unwrap_err();
        assert_eq!(error, CodecError::OverLimit { codec: "LZMA", allowed: 1 << 30 });
        assert_eq!(error.to_string(), "LZMA: the tile asks for more than the 1073741824 bytes that are allowed");
    }

    #[test]
    fn notices_a_wrong_check() {
        let bytes = testing::ramp(1000);
        let mut packed = pack(&bytes, &filters(1 << 16));
        let at = packed.len() - 12 - 8 - 4 - 1;
        packed[at] ^= 1;
        let error = Lzma.decode(&spec(SampleType::U8, 1, 100), 10, &packed, &mut [0; 1000], &mut Scratch::default());
        assert!(matches!(error, Err(CodecError::Corrupt { .. })), "{error:?}");
    }

    #[test]
    fn survives_damage() {
        testing::damage(&Lzma, &spec(SampleType::U8, 1, 100), 10, &pack(&testing::ramp(1000), &filters(1 << 16)));
    }
}
