// Zstd tiles: the data that the kernels which decode them pass to each other.
//
// A frame is a row of blocks. A block is literals and sequences; a sequence is a number of literals, then a match, which
// copies earlier bytes. Five kernels turn frames into tiles:
//   walk       finds the blocks of each tile by their headers
//   sequences  reads the sequences of each block, one lane a block; it keeps the number of bytes they make and, every few
//   sequences, a mark: its position and state
//   layout     finds where the bytes of each block go
//   literals   decodes the literals of each block, 32 lanes a block, to the end of the block's place in the tile
//   execute    reads the sequences again, from many marks at once, and copies literals and matches to their place, window
//   by window; it overwrites only literals that it has used
// NOTES.md says why.
#pragma once
#include "core/atomics.cuh"
#include "core/kernel.cuh"
#include "zstd/format.cuh"

constexpr u32 ZSTD_MAGIC = 0xfd2fb528u, ZSTD_SKIPPABLE = 0x184d2a50u;
// The most bytes a block may decode to; a frame with a smaller window allows fewer.
constexpr u32 ZSTD_BLOCK_LEN = 128 << 10;
// Positions are 32 bits: bytes of a tile with a bit to spare, and bits of a stream.
constexpr u64 ZSTD_MOST_TILE = 1ull << 30, ZSTD_MOST_STREAM = 1ull << 28;

// `DecodeArgs::flags`
enum ZstdFlags : u32 {
    ZSTD_VERIFY = 1,  // checksums, where frames have them
    ZSTD_SHARED = 2,  // many blocks of threads write a tile: only a ninth of its scratch is for what is described here
};

enum ZstdBlock : u32 {
    ZSTD_RAW = 0,
    ZSTD_RLE = 1,
    ZSTD_COMPRESSED = 2,
    ZSTD_KIND = 3,           // mask of the block type
    ZSTD_FRAME_FIRST = 4,    // first block of a frame
    ZSTD_FRAME_LAST = 8,     // last block of a frame: no kernel reads it; removing it changes machine code, so it waits for a run on a GPU
    ZSTD_HAS_CONTENT = 16,   // last block of a frame that declares its length
    ZSTD_HAS_CHECKSUM = 32,  // last block of a frame that has a checksum
};

// How literals are stored.
enum ZstdLiterals : u32 { ZSTD_PLAIN = 0, ZSTD_ONE_BYTE = 1, ZSTD_HUFFMAN = 2 };

// One block. Positions in the stream and in the tile are bytes from their start.
struct ZstdNote {
    u32 flags;                    // bits of ZstdBlock
    u32 src, src_len;             // the bytes after its header
    u32 literal_kind;
    u32 literals;                 // number of literals
    u32 literal_at, literal_len;  // the tree, unless an earlier block has it, and the streams
    u32 streams;                  // 1 or 4
    u32 tree;                     // number of the block that holds the tree
    u32 sequences;                // number of sequences
    u32 sequence_at;              // position of the byte with the modes
    u32 tables[ZSTD_CODES];       // numbers of the blocks that hold the tables
    u32 store;                    // place of its tables and marks in the tile's scratch
    u32 most;                     // most bytes that it may decode to
    u32 size;                     // bytes that it decodes to
    u32 dst;                      // position of the first of them in the tile
    u32 frame;                    // position of the first byte of its frame in the tile
    u32 content;                  // declared length of its frame
    u32 offsets[3];               // set by `sequences` to the last three (see ZstdOffset), by `layout` to the three before the block
    u32 unused;
};

// The cells of the three tables of a block, one table after the other.
constexpr u32 ZSTD_TABLE_CELLS = 1280;
SWATH_FN u32 table_at(u32 code) { return code == ZSTD_LITERALS ? 0 : code == ZSTD_OFFSETS ? 512 : 768; }

// Marks: the state of the reader before every `stride` sequences. A stride is a power of two, usually the least.
constexpr u32 ZSTD_LEAST_STRIDE = 16, ZSTD_MOST_STRIDE = 1024;
struct ZstdMark {
    u32 bit;          // of the stream; bits are read from here downwards
    u32 states;       // FSE states: 9 bits for literals, 8 for offsets, 9 for lengths
    u32 out;          // bytes of the block so far
    u32 literals;     // literals so far
    u32 offsets[3];
};

// The first bytes of a tile's scratch.
struct ZstdHead {
    u32 blocks;
    u32 stride;  // sequences from mark to mark
    u32 tables;  // bytes of tables kept for each block: all or 0
    u32 unused;
};

// The scratch of a tile: a head, notes about its blocks, then tables and marks of the blocks.
struct ZstdScratch {
    u8* data;
    u32 len;
    u32 room;  // number of notes that fit

    SWATH_FN ZstdScratch(const DecodeArgs& args, u64 tile)
        : data(args.scratch + tile * args.scratch_len), len(u32(min_of(own_len(args), u64(0xfffffff0u)))),
          room(most_notes(args)) {}

    SWATH_FN static u64 own_len(const DecodeArgs& args) {
        return (args.flags & ZSTD_SHARED) != 0 ? args.scratch_len / 9 / 16 * 16 : args.scratch_len;
    }
    SWATH_FN static u32 most_notes(const DecodeArgs& args) { return most_notes(own_len(args)); }

    // So many notes for each 8 KiB of a tile that is twice as long as its scratch.
    SWATH_FN static u32 most_notes(u64 len) {
        if (len < sizeof(ZstdHead)) return 0;
        const u64 likely = 4 + min_of(len / 512, 32 + len / 4096);
        return u32(min_of(min_of(likely, (len - sizeof(ZstdHead)) / sizeof(ZstdNote)), u64(0xffffff)));
    }

    SWATH_FN ZstdHead& head() const { return *reinterpret_cast<ZstdHead*>(data); }
    SWATH_FN ZstdNote* notes() const { return reinterpret_cast<ZstdNote*>(data + sizeof(ZstdHead)); }
    // Start of tables and marks.
    SWATH_FN u32 store() const { return u32(sizeof(ZstdHead)) + room * u32(sizeof(ZstdNote)); }
    SWATH_FN u32* tables(const ZstdNote& note) const { return reinterpret_cast<u32*>(data + note.store); }
    SWATH_FN ZstdMark* marks(const ZstdNote& note) const {
        return reinterpret_cast<ZstdMark*>(data + note.store + head().tables);
    }
};

// The memory of a tile. Its lengths are valid if `walk` has left the status OK.
struct ZstdTile {
    Span<const u8> src;
    Span<u8> dst;
    ZstdScratch scratch;
    bool sound;

    SWATH_FN ZstdTile(const DecodeArgs& args, u64 at) : ZstdTile(args, args.tiles[at], at) {}
    SWATH_FN ZstdTile(const DecodeArgs& args, const TileJob& job, u64 at)
        : src(Span<const u8>(args.src, args.src_len).part(job.src, job.src_len)),
          dst(Span<u8>(args.dst, args.dst_len).part(job.dst, job.dst_len)), scratch(args, at),
          sound(src.len == job.src_len && dst.len == job.dst_len && src.len <= ZSTD_MOST_STREAM &&
                dst.len <= ZSTD_MOST_TILE) {}
};

// Sets the status of a tile; the highest number wins.
SWATH_FN void report_status(const DecodeArgs& args, u64 tile, u32 status) { atomic_max(&args.status[tile], status); }
