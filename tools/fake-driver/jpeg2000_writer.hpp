// A short lossless JPEG 2000 encoder for the stand-in: bare code streams without halvings, valid for every decoder.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace jpeg2000_writer {

// The arithmetic coder of ISO/IEC 15444-1, annex C.
class Coder {
  public:
    enum { SIGN = 9, REFINE = 14, RUN = 17, UNIFORM = 18, CONTEXTS = 19 };

    Coder() {
        contexts[0].state = 4;
        contexts[RUN].state = 3;
        contexts[UNIFORM].state = 46;
    }

    void put(int context, bool bit) {
        Context& at = contexts[context];
        const State& state = STATES[at.state];
        range -= state.width;
        // The more probable symbol has the upper part, unless that has become the smaller one.
        const bool is_likely = bit == at.likely;
        if (is_likely && range & 0x8000) {
            low += state.width;
            return;
        }
        if ((range < state.width) == is_likely) range = state.width;
        else low += state.width;
        if (!is_likely && state.flips) at.likely = !at.likely;
        at.state = is_likely ? state.after_likely : state.after_other;
        do {
            range <<= 1;
            low <<= 1;
            if (--room == 0) move_byte();
        } while (!(range & 0x8000));
    }

    std::vector<uint8_t> finish() {
        const uint32_t end = low + range;
        low |= 0xFFFF;
        if (low >= end) low -= 0x8000;
        for (int time = 0; time < 2; time++) {
            low <<= room;
            move_byte();
        }
        if (bytes.back() == 0xFF) bytes.pop_back();
        bytes.erase(bytes.begin());
        return std::move(bytes);
    }

  private:
    struct State {
        uint16_t width;
        uint8_t after_likely, after_other, flips;
    };
    struct Context {
        int state = 0;
        bool likely = false;
    };
    static constexpr State STATES[47] = {
        {0x5601, 1, 1, 1},    {0x3401, 2, 6, 0},    {0x1801, 3, 9, 0},    {0x0AC1, 4, 12, 0},   {0x0521, 5, 29, 0},
        {0x0221, 38, 33, 0},  {0x5601, 7, 6, 1},    {0x5401, 8, 14, 0},   {0x4801, 9, 14, 0},   {0x3801, 10, 14, 0},
        {0x3001, 11, 17, 0},  {0x2401, 12, 18, 0},  {0x1C01, 13, 20, 0},  {0x1601, 29, 21, 0},  {0x5601, 15, 14, 1},
        {0x5401, 16, 14, 0},  {0x5101, 17, 15, 0},  {0x4801, 18, 16, 0},  {0x3801, 19, 17, 0},  {0x3401, 20, 18, 0},
        {0x3001, 21, 19, 0},  {0x2801, 22, 19, 0},  {0x2401, 23, 20, 0},  {0x2201, 24, 21, 0},  {0x1C01, 25, 22, 0},
        {0x1801, 26, 23, 0},  {0x1601, 27, 24, 0},  {0x1401, 28, 25, 0},  {0x1201, 29, 26, 0},  {0x1101, 30, 27, 0},
        {0x0AC1, 31, 28, 0},  {0x09C1, 32, 29, 0},  {0x08A1, 33, 30, 0},  {0x0521, 34, 31, 0},  {0x0441, 35, 32, 0},
        {0x02A1, 36, 33, 0},  {0x0221, 37, 34, 0},  {0x0141, 38, 35, 0},  {0x0111, 39, 36, 0},  {0x0085, 40, 37, 0},
        {0x0049, 41, 38, 0},  {0x0025, 42, 39, 0},  {0x0015, 43, 40, 0},  {0x0009, 44, 41, 0},  {0x0005, 45, 42, 0},
        {0x0001, 45, 43, 0},  {0x5601, 46, 46, 0},
    };

    void move_byte() {
        const bool carries = low & 0x8000000;
        if (bytes.back() != 0xFF && carries && ++bytes.back() == 0xFF) low &= 0x7FFFFFF;
        // After 0xFF only seven bits go into a byte, so that no marker appears.
        const bool is_short = bytes.back() == 0xFF;
        bytes.push_back(uint8_t(low >> (is_short ? 20 : 19)));
        low &= is_short ? 0xFFFFF : 0x7FFFF;
        room = is_short ? 7 : 8;
    }

    Context contexts[CONTEXTS];
    uint32_t range = 0x8000, low = 0;
    int room = 12;
    std::vector<uint8_t> bytes{0};
};

// One block of samples, bit plane by bit plane (annex D).
class Block {
  public:
    Block(const std::vector<int>& samples, int width, int height)
        : width(width), height(height), cells(size_t(width + 2) * size_t(height + 2)) {
        int largest = 0;
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                const int sample = samples[size_t(y) * size_t(width) + size_t(x)];
                cell(x, y).size = std::abs(sample);
                cell(x, y).negative = sample < 0;
                largest = std::max(largest, std::abs(sample));
            }
        while (largest >> planes) planes++;
        for (plane = planes - 1; plane >= 0; plane--) {
            if (plane < planes - 1) {
                each([&](int x, int y) { spread(x, y); });
                each([&](int x, int y) { refine(x, y); });
            }
            clean();
            for (Cell& each : cells) each.visited = false;
        }
        passes = planes ? 3 * planes - 2 : 0;
        if (planes) bytes = coder.finish();
    }

    int planes = 0, passes = 0;
    std::vector<uint8_t> bytes;

  private:
    struct Cell {
        int size = 0;
        bool negative = false, known = false, visited = false, refined = false;
    };

    Cell& cell(int x, int y) { return cells[size_t(y + 1) * size_t(width + 2) + size_t(x + 1)]; }
    int known(int x, int y) { return cell(x, y).known; }
    // 1, -1 or, where nothing is known, 0.
    int sign(int x, int y) { return known(x, y) ? cell(x, y).negative ? -1 : 1 : 0; }
    bool bit(int x, int y) { return cell(x, y).size >> plane & 1; }

    // In stripes of four rows, column by column.
    template <class F> void each(F visit) {
        for (int top = 0; top < height; top += 4)
            for (int x = 0; x < width; x++)
                for (int y = top; y < std::min(top + 4, height); y++) visit(x, y);
    }

    int context(int x, int y) {
        const int h = known(x - 1, y) + known(x + 1, y), v = known(x, y - 1) + known(x, y + 1);
        const int d = known(x - 1, y - 1) + known(x + 1, y - 1) + known(x - 1, y + 1) + known(x + 1, y + 1);
        if (h == 2) return 8;
        if (h == 1) return v ? 7 : d ? 6 : 5;
        return v ? v + 2 : std::min(d, 2);
    }

    void code_sign(int x, int y) {
        const int h = std::clamp(sign(x - 1, y) + sign(x + 1, y), -1, 1);
        const int v = std::clamp(sign(x, y - 1) + sign(x, y + 1), -1, 1);
        const bool flips = h < 0 || (h == 0 && v < 0);
        const int place = h == 0 ? std::abs(v) : 3 + (flips ? -v : v);
        coder.put(Coder::SIGN + place, cell(x, y).negative != flips);
        cell(x, y).known = true;
    }

    void spread(int x, int y) {
        if (known(x, y) || !context(x, y)) return;
        coder.put(context(x, y), bit(x, y));
        cell(x, y).visited = true;
        if (bit(x, y)) code_sign(x, y);
    }

    void refine(int x, int y) {
        Cell& at = cell(x, y);
        if (!at.known || at.visited) return;
        coder.put(Coder::REFINE + (at.refined ? 2 : context(x, y) != 0), bit(x, y));
        at.refined = at.visited = true;
    }

    void clean() {
        for (int top = 0; top < height; top += 4)
            for (int x = 0; x < width; x++) {
                int y = top;
                bool is_quiet = top + 4 <= height, begins = false;
                for (int row = top; is_quiet && row < top + 4; row++)
                    is_quiet = !known(x, row) && !cell(x, row).visited && !context(x, row);
                if (is_quiet) {
                    while (y < top + 4 && !bit(x, y)) y++;
                    coder.put(Coder::RUN, y < top + 4);
                    if (y == top + 4) continue;
                    coder.put(Coder::UNIFORM, (y - top) >> 1);
                    coder.put(Coder::UNIFORM, (y - top) & 1);
                    begins = true;
                }
                for (; y < std::min(top + 4, height); y++, begins = false) {
                    if (known(x, y) || cell(x, y).visited) continue;
                    if (!begins) coder.put(context(x, y), bit(x, y));
                    if (bit(x, y)) code_sign(x, y);
                }
            }
    }

    const int width, height;
    std::vector<Cell> cells;
    int plane = 0;
    Coder coder;
};

// The head of a packet: bits from the highest on, seven after a byte of all ones.
class Bits {
  public:
    void put(uint32_t value, int bits) {
        while (bits--) {
            held = uint8_t(held << 1 | (value >> bits & 1));
            if (--room) continue;
            bytes.push_back(held);
            room = held == 0xFF ? 7 : 8;
            held = 0;
        }
    }
    void finish() {
        const bool is_after_ones = !bytes.empty() && bytes.back() == 0xFF;
        if (room < (is_after_ones ? 7 : 8)) put(0, room);
        if (!bytes.empty() && bytes.back() == 0xFF) put(0, 7);
    }

    std::vector<uint8_t> bytes;

  private:
    uint8_t held = 0;
    int room = 8;
};

// Numbers for each block; each node holds the smallest number below it (annex B.10.2).
class Tree {
  public:
    Tree(const std::vector<int>& values, int width, int height) {
        levels.push_back({width, height, {}});
        for (const int value : values) levels[0].nodes.push_back({value});
        while (levels.back().width * levels.back().height > 1) {
            const Level& below = levels.back();
            Level level{(below.width + 1) / 2, (below.height + 1) / 2, {}};
            level.nodes.resize(size_t(level.width) * size_t(level.height), {INT32_MAX});
            for (int y = 0; y < below.height; y++)
                for (int x = 0; x < below.width; x++) {
                    int& value = level.at(x / 2, y / 2).value;
                    value = std::min(value, below.nodes[size_t(y) * size_t(below.width) + size_t(x)].value);
                }
            levels.push_back(level);
        }
    }

    // Codes whether the value is below the threshold, and if so, the value.
    void put(Bits& bits, int x, int y, int threshold) {
        int least = 0;
        for (size_t level = levels.size(); level-- > 0;) {
            Node& node = levels[level].at(x >> level, y >> level);
            node.least = std::max(node.least, least);
            for (; node.least < threshold && !node.told; node.least += !node.told) {
                node.told = node.least >= node.value;
                bits.put(node.told, 1);
            }
            least = node.least;
        }
    }

  private:
    struct Node {
        int value = 0, least = 0;
        bool told = false;
    };
    struct Level {
        int width, height;
        std::vector<Node> nodes;

        Node& at(int x, int y) { return nodes[size_t(y) * size_t(width) + size_t(x)]; }
    };
    std::vector<Level> levels;
};

inline int log2_of(int value) {
    int log = 0;
    while (value >> (log + 1)) log++;
    return log;
}

// A component's samples as one packet.
inline void write_packet(const std::vector<int>& samples, int width, int height, int most_planes,
                         std::vector<uint8_t>& out) {
    constexpr int SIDE = 64;
    const int across = (width + SIDE - 1) / SIDE, down = (height + SIDE - 1) / SIDE;
    std::vector<Block> blocks;
    std::vector<int> absent, empty_planes;
    for (int at = 0; at < across * down; at++) {
        const int left = at % across * SIDE, top = at / across * SIDE;
        const int columns = std::min(SIDE, width - left), rows = std::min(SIDE, height - top);
        std::vector<int> part;
        for (int y = top; y < top + rows; y++)
            for (int x = left; x < left + columns; x++) part.push_back(samples[size_t(y) * size_t(width) + size_t(x)]);
        blocks.emplace_back(part, columns, rows);
        absent.push_back(blocks.back().passes == 0);
        empty_planes.push_back(most_planes - blocks.back().planes);
    }
    Tree absence(absent, across, down), emptiness(empty_planes, across, down);
    Bits head;
    head.put(1, 1);
    for (int at = 0; at < across * down; at++) {
        const Block& block = blocks[size_t(at)];
        absence.put(head, at % across, at / across, 1);
        if (!block.passes) continue;
        emptiness.put(head, at % across, at / across, INT32_MAX);
        if (block.passes == 1) head.put(0, 1);
        else if (block.passes == 2) head.put(2, 2);
        else if (block.passes <= 5) head.put(uint32_t(3 << 2 | (block.passes - 3)), 4);
        else if (block.passes <= 36) head.put(uint32_t(15 << 5 | (block.passes - 6)), 9);
        else head.put(uint32_t(511 << 7 | (block.passes - 37)), 16);
        int bits = 3 + log2_of(block.passes);
        for (; bits <= log2_of(int(block.bytes.size()) | 1); bits++) head.put(1, 1);
        head.put(0, 1);
        head.put(uint32_t(block.bytes.size()), bits);
    }
    head.finish();
    out.insert(out.end(), head.bytes.begin(), head.bytes.end());
    for (const Block& block : blocks) out.insert(out.end(), block.bytes.begin(), block.bytes.end());
}

inline void big(std::vector<uint8_t>& out, uint32_t value, int bytes) {
    while (bytes--) out.push_back(uint8_t(value >> 8 * bytes));
}

// A stream of one tile; the planes hold samples as they are.
inline std::vector<uint8_t> write(std::vector<std::vector<int>> planes, int width, int height, int bits, bool is_signed,
                                  bool colours) {
    std::vector<uint8_t> out;
    const auto count = uint32_t(planes.size());
    big(out, 0xFF4FFF51, 4);
    big(out, 38 + 3 * count, 2);
    big(out, 0, 2);
    for (int time = 0; time < 2; time++) {
        big(out, uint32_t(width), 4);
        big(out, uint32_t(height), 4);
        big(out, 0, 4);
        big(out, 0, 4);
    }
    big(out, count, 2);
    for (uint32_t c = 0; c < count; c++) big(out, uint32_t(bits - 1 + (is_signed ? 128 : 0)) << 16 | 0x0101, 3);
    // One layer, no halvings, blocks of 64 by 64, the reversible transform.
    big(out, 0xFF52000C, 4);
    big(out, 0x00000001, 4);
    big(out, uint32_t(colours) << 8 | 0, 2);
    big(out, 0x04040001, 4);
    // Two guard bits, and as many planes as samples have bits: one more is left for chroma.
    big(out, 0xFF5C0004, 4);
    big(out, uint32_t(0x40 << 8 | bits << 3), 2);
    const size_t tile = out.size();
    big(out, 0xFF90000A, 4);
    big(out, 0, 2);
    big(out, 0, 4);
    big(out, 0x0001FF93, 4);
    if (!is_signed)
        for (auto& plane : planes)
            for (int& sample : plane) sample -= 1 << (bits - 1);
    if (colours)
        for (size_t at = 0; at < planes[0].size(); at++) {
            const int red = planes[0][at], green = planes[1][at], blue = planes[2][at];
            planes[0][at] = (red + 2 * green + blue) >> 2;
            planes[1][at] = blue - green;
            planes[2][at] = red - green;
        }
    for (const auto& plane : planes) write_packet(plane, width, height, bits + 1, out);
    const auto len = uint32_t(out.size() - tile);
    for (int at = 0; at < 4; at++) out[tile + 6 + size_t(at)] = uint8_t(len >> 8 * (3 - at));
    big(out, 0xFFD9, 2);
    return out;
}

}  // namespace jpeg2000_writer
