//! The fixed tables: those of T.81 Annex K, and Huffman tables for 12 bits, which Annex K lacks.

/// Tables K.1 and K.2 (luminance, chrominance), in scan order.
pub(super) const QUANT: [[u8; 64]; 2] = [
    [
        16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37, 29, 40, 58, 51,
        61, 60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81, 87, 95, 98, 103, 104, 103, 62, 77,
        113, 121, 112, 100, 120, 92, 101, 103, 99,
    ],
    [
        17, 18, 18, 24, 21, 24, 47, 26, 26, 47, 99, 66, 56, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99,
    ],
];

/// A Huffman table as DHT has it: how many codes there are of each length, and the symbols from the shortest code on.
///
/// Of AC tables only the symbols with codes under 16 bits are listed: the rest all have 16 bits and follow in rising order, in Annex K as well.
pub(super) struct Spec {
    pub counts: [u8; 16],
    pub symbols: &'static [u8],
}

/// Tables for luminance and for chrominance.
pub(super) struct Set {
    pub dc: [Spec; 2],
    pub ac: [Spec; 2],
    /// Largest size category of an AC coefficient.
    pub largest: u8,
}

/// Tables K.3 to K.6.
pub(super) const BITS_8: Set = Set {
    dc: [
        Spec {
            counts: [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
            symbols: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        },
        Spec {
            counts: [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
            symbols: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        },
    ],
    ac: [
        Spec {
            counts: [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125],
            symbols: &[
                0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22,
                0x71, 0x14, 0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33,
                0x62, 0x72, 0x82,
            ],
        },
        Spec {
            counts: [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119],
            symbols: &[
                0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13,
                0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0, 0x15, 0x62,
                0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1,
            ],
        },
    ],
    largest: 10,
};

/// Made for this encoder: optimal for symbol counts over synthetic 12-bit images (noise that falls off with frequency, edges, sensor noise) of several
/// contrasts at qualities 50 to 95, with a code for every symbol that 12-bit samples can need.
pub(super) const BITS_12: Set = Set {
    dc: [
        Spec {
            counts: [0, 1, 4, 2, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
            symbols: &[8, 9, 7, 10, 6, 11, 5, 4, 12, 3, 2, 13, 1, 0, 14, 15],
        },
        Spec {
            counts: [0, 1, 4, 3, 1, 1, 1, 1, 0, 3, 1, 0, 0, 0, 0, 0],
            symbols: &[6, 7, 5, 4, 8, 3, 9, 2, 10, 1, 0, 11, 13, 14, 15, 12],
        },
    ],
    ac: [
        Spec {
            counts: [0, 1, 3, 3, 3, 2, 4, 4, 3, 3, 5, 2, 7, 3, 4, 179],
            symbols: &[
                0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x11, 0x07, 0x08, 0x12, 0x21, 0x09, 0x00, 0x13, 0x31, 0x0A, 0x22,
                0x14, 0x41, 0x0B, 0x51, 0x15, 0x61, 0x32, 0x23, 0x71, 0x0C, 0x81, 0x16, 0x91, 0x42, 0xA1, 0x24, 0x17,
                0xB1, 0xF0, 0x52, 0x33, 0xC1, 0xD1, 0xE1, 0x18, 0x62, 0xF1, 0x25, 0x0D, 0x43,
            ],
        },
        Spec {
            counts: [0, 1, 3, 2, 5, 2, 4, 2, 6, 7, 2, 2, 4, 1, 2, 183],
            symbols: &[
                0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x00, 0x12, 0x06, 0x31, 0x41, 0x07, 0x51, 0x13, 0x22, 0x61,
                0x08, 0x71, 0x81, 0x14, 0x32, 0xF0, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x15, 0xE1, 0xD1, 0x42, 0xF1,
                0x16, 0x52, 0x24, 0x33, 0x62, 0x17, 0x72, 0x82, 0x25,
            ],
        },
    ],
    largest: 14,
};
