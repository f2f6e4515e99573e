// Zstd tiles: what the kernels that decode them one after the other tell each other.
//
// A frame is blocks, and a block is literals and sequences; a sequence says how many literals follow, then which earlier
// bytes. Five kernels make tiles of frames:
//   walk       finds the blocks of each tile by their headers
//   sequences  goes through the sequences of each block, one lane a block; all it keeps is how many bytes they make and,
//              every few sequences, where it was
//   layout     says where the bytes of each block go
//   literals   decodes the literals of each block, 32 lanes a block, to the end of where its bytes go
//   execute    goes through the sequences again, from many places at once, and brings literals and earlier bytes to
//              their place, window by window; what it overwrites are literals that it has used
// NOTES.md says why.
#pragma once
#include "core/atomics.cuh"
#include "core/kernel.cuh"
#include "zstd/format.cuh"

constexpr u32 ZSTD_MAGIC = 0xfd2fb528u, ZSTD_SKIPPABLE = 0x184d2a50u;
// What a block may hold at most, unless its frame says less.
constexpr u32 ZSTD_BLOCK_LEN = 128 << 10;
// Positions are counted in 32 bits: bytes of a tile with a bit to spare, and bits of a stream.
constexpr u64 ZSTD_MOST_TILE = 1ull << 30, ZSTD_MOST_STREAM = 1ull << 28;

// `DecodeArgs::flags`
enum ZstdFlags : u32 { ZSTD_VERIFY = 1 };

enum ZstdBlock : u32 {
    ZSTD_RAW = 0,
    ZSTD_RLE = 1,
    ZSTD_COMPRESSED = 2,
    ZSTD_KIND = 3,           // the bits of the above
    ZSTD_FRAME_FIRST = 4,    // a frame begins with this block
    ZSTD_FRAME_LAST = 8,     // and ends with this one
    ZSTD_HAS_CONTENT = 16,   // the last block of a frame that says how long it is
    ZSTD_HAS_CHECKSUM = 32,  // the last block of a frame that has a checksum
};

// How literals are told.
enum ZstdLiterals : u32 { ZSTD_PLAIN = 0, ZSTD_ONE_BYTE = 1, ZSTD_HUFFMAN = 2 };

// One block. Places in the stream and in the tile are bytes from their beginning.
struct ZstdNote {
    u32 flags;                    // of ZstdBlock
    u32 src, src_len;             // what follows its header
    u32 literal_kind;
    u32 literals;                 // bytes
    u32 literal_at, literal_len;  // the tree where it is told here, and the streams
    u32 streams;                  // 1 or 4
    u32 tree;                     // the block that tells the tree
    u32 sequences;                // how many
    u32 sequence_at;              // the byte of modes
    u32 tables[ZSTD_CODES];       // the block that tells each table
    u32 store;                    // where in the tile's scratch its tables and marks are
    u32 most;                     // bytes that it may have
    u32 size;                     // bytes that it has
    u32 dst;                      // the first of them
    u32 frame;                    // the first byte of its frame
    u32 content;                  // bytes of its frame, as that says
    u32 offsets[3];               // of `sequences`: the last three, see ZstdOffset; of `layout`: those before the block
    u32 unused;
};

// The tables of a block's three codes, one behind the other.
constexpr u32 ZSTD_TABLE_CELLS = 1280;
SWATH_FN u32 table_at(u32 code) { return code == ZSTD_LITERALS ? 0 : code == ZSTD_OFFSETS ? 512 : 768; }

// Where the lane of a block's sequences was before every so many of them: usually the least, always a power of two.
constexpr u32 ZSTD_LEAST_STRIDE = 16, ZSTD_MOST_STRIDE = 1024;
struct ZstdMark {
    u32 bit;          // of the stream, from where bits are read downwards
    u32 states;       // 9 bits for literals, 8 for offsets, 9 for lengths
    u32 out;          // bytes of the block so far
    u32 literals;     // literals so far
    u32 offsets[3];
};

// What begins a tile's share of the scratch.
struct ZstdHead {
    u32 blocks;
    u32 stride;  // of marks
    u32 tables;  // bytes that are kept of each block's tables: all or none
    u32 unused;
};

// A tile's share of the scratch: a head, its notes, then tables and marks of blocks.
struct ZstdScratch {
    u8* data;
    u32 len;
    u32 room;  // for notes

    SWATH_FN ZstdScratch(const DecodeArgs& args, u64 tile)
        : data(args.scratch + tile * args.scratch_len), len(u32(min_of(args.scratch_len, u64(0xfffffff0u)))),
          room(most_notes(args.scratch_len)) {}

    // Some for each 8 KiB of a tile that is twice its scratch.
    SWATH_FN static u32 most_notes(u64 len) {
        if (len < sizeof(ZstdHead)) return 0;
        const u64 likely = 4 + min_of(len / 512, 32 + len / 4096);
        return u32(min_of(min_of(likely, (len - sizeof(ZstdHead)) / sizeof(ZstdNote)), u64(0xffffff)));
    }

    SWATH_FN ZstdHead& head() const { return *reinterpret_cast<ZstdHead*>(data); }
    SWATH_FN ZstdNote* notes() const { return reinterpret_cast<ZstdNote*>(data + sizeof(ZstdHead)); }
    // Where tables and marks begin.
    SWATH_FN u32 store() const { return u32(sizeof(ZstdHead)) + room * u32(sizeof(ZstdNote)); }
    SWATH_FN u32* tables(const ZstdNote& note) const { return reinterpret_cast<u32*>(data + note.store); }
    SWATH_FN ZstdMark* marks(const ZstdNote& note) const {
        return reinterpret_cast<ZstdMark*>(data + note.store + head().tables);
    }
};

// A tile's memory. Its lengths are sound where `walk` has left the status OK.
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

// The worst that was found stays.
SWATH_FN void blame(const DecodeArgs& args, u64 tile, u32 status) { atomic_max(&args.status[tile], status); }
