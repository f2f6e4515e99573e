//! Reads xz containers, within the memory that the limits allow.

use liblzma::stream::{Action, Error, Status, Stream};

use super::{Lzma, NAME};
use crate::{
    decode::{Decode, Fill},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

impl Decode for Lzma {
    fn decode(
        &self,
        spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        let expected = dst.len() as u64;
        // The dictionary is nearly all of the decoder's memory. The strongest preset of xz takes 65 MiB, but the format allows
        // 4 GiB, and a stream's header alone makes the decoder allocate it.
        let allowed = spec.limits.plausible(src.len() as u64).min(spec.limits.tile_bytes);
        let failed = |error: &Error, at: u64| failed(error, at, allowed);
        let mut stream = Stream::new_stream_decoder(allowed, 0).map_err(|error| failed(&error, 0))?;
        while stream.total_out() < expected {
            let (read, made) = (stream.total_in(), stream.total_out());
            let input = src.get(read as usize..).unwrap_or_default();
            let output = dst.get_mut(made as usize..).unwrap_or_default();
            let status = stream.process(input, output, Action::Run).map_err(|error| failed(&error, read))?;
            let stuck = (read, made) == (stream.total_in(), stream.total_out());
            if stream.total_out() < expected && (status == Status::StreamEnd || stuck) {
                return Err(CodecError::Short { codec: NAME, got: stream.total_out(), expected });
            }
            if status == Status::StreamEnd {
                return Ok(Fill::Exact);
            }
        }
        // The tile is complete, but the stream's check follows the last sample. One byte of room tells an end from a surplus. A
        // stream truncated after its last sample is accepted, as in libtiff.
        loop {
            let read = stream.total_in();
            let input = src.get(read as usize..).unwrap_or_default();
            let status = stream.process(input, &mut [0], Action::Finish);
            if stream.total_out() > expected {
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
        // liblzma knows how much the stream needs, but the binding does not expose it.
        Error::MemLimit => CodecError::OverLimit { codec: NAME, allowed },
        Error::Mem => CodecError::LibraryMemory { codec: NAME },
        error => CodecError::corrupt(NAME, format!("{error} near byte {at} of the tile")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codec::testing::{self, spec};
    use liblzma::stream::{Check, Filters, LzmaOptions};
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
        assert_eq!(error, Err(CodecError::Short { codec: "LZMA", got: 1000, expected: 1001 }));
    }

    #[test]
    fn delta_filter_of_libtiff() {
        // libtiff puts a delta filter with the distance of one sample before LZMA2.
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
