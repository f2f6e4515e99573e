// A short baseline JPEG encoder for the stand-in: valid for every decoder, neither compact nor fast.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace jpeg_writer {

// One plane of samples from 0 to 255; columns and rows outside it are those at its edge.
struct Plane {
    int width = 0, height = 0;
    std::vector<float> samples;

    float at(int x, int y) const {
        return samples[size_t(std::min(y, height - 1)) * size_t(width) + size_t(std::min(x, width - 1))];
    }
    Plane shrunk(int across, int down) const {
        Plane small{(width + across - 1) / across, (height + down - 1) / down, {}};
        for (int y = 0; y < small.height; y++)
            for (int x = 0; x < small.width; x++) {
                float sum = 0;
                for (int j = 0; j < down; j++)
                    for (int i = 0; i < across; i++) sum += at(x * across + i, y * down + j);
                small.samples.push_back(sum / float(across * down));
            }
        return small;
    }
};

class Writer {
  public:
    // Chroma has a sample for `across` by `down` of luma's; planes are YCbCr, or one of grey.
    Writer(std::vector<Plane> full, int across, int down, int quality) : planes(std::move(full)) {
        if (planes.size() == 1) across = down = 1;
        for (size_t c = 1; c < planes.size(); c++) planes[c] = planes[c].shrunk(across, down);
        const int width = planes[0].width, height = planes[0].height;
        const int scale = quality < 50 ? 5000 / quality : 200 - 2 * quality;
        for (int at = 0; at < 64; at++)
            quant[at] = std::clamp(((10 + 4 * (at / 8 + at % 8)) * scale + 50) / 100, 1, 255);
        for (int at = 0; at < 64; at++)
            cosines[at] = std::cos(float(M_PI) * float(2 * (at % 8) + 1) * float(at / 8) / 16);
        head(width, height, across, down);
        const int block = 8;
        std::vector<int> previous(planes.size());
        for (int y = 0; y < height; y += block * down)
            for (int x = 0; x < width; x += block * across)
                for (size_t c = 0; c < planes.size(); c++) {
                    const int h = c ? 1 : across, v = c ? 1 : down;
                    for (int j = 0; j < v; j++)
                        for (int i = 0; i < h; i++)
                            code(planes[c], x / across * h + i * block, y / down * v + j * block, previous[c]);
                }
        put(0x7F, 7);
        out.insert(out.end(), {0xFF, 0xD9});
    }

    std::vector<uint8_t> out;

  private:
    void segment(uint8_t marker, const std::vector<uint8_t>& body) {
        const size_t len = body.size() + 2;
        out.insert(out.end(), {0xFF, marker, uint8_t(len >> 8), uint8_t(len)});
        out.insert(out.end(), body.begin(), body.end());
    }

    void head(int width, int height, int across, int down) {
        out = {0xFF, 0xD8};
        segment(0xE0, {'J', 'F', 'I', 'F', 0, 1, 2, 0, 0, 1, 0, 1, 0, 0});
        std::vector<uint8_t> body{0};
        for (const int at : zigzag()) body.push_back(uint8_t(quant[at]));
        segment(0xDB, body);
        const auto count = uint8_t(planes.size());
        body = {8, uint8_t(height >> 8), uint8_t(height), uint8_t(width >> 8), uint8_t(width), count};
        for (uint8_t c = 0; c < count; c++)
            body.insert(body.end(), {uint8_t(c + 1), uint8_t(c ? 0x11 : across << 4 | down), 0});
        segment(0xC0, body);
        // Codes of one length each: 12 of 4 bits for sizes, 162 of 8 bits for runs.
        body.assign(17, 0);
        body[4] = 12;
        for (uint8_t size = 0; size < 12; size++) body.push_back(size);
        segment(0xC4, body);
        body.assign(17, 0);
        body[0] = 0x10;
        body[8] = 162;
        for (int symbol = 0; symbol < 256; symbol++)
            if (run_word(symbol) >= 0) body.push_back(uint8_t(symbol));
        segment(0xC4, body);
        body = {count};
        for (uint8_t c = 0; c < count; c++) body.insert(body.end(), {uint8_t(c + 1), 0});
        body.insert(body.end(), {0, 63, 0});
        segment(0xDA, body);
    }

    // The place among the symbols there are: the end, 16 zeros, and sizes 1 to 10 after 0 to 15 zeros. -1 for others.
    static int run_word(int symbol) {
        const int run = symbol >> 4, size = symbol & 15;
        const bool is_special = symbol == 0x00 || symbol == 0xF0;
        if (!is_special && (size < 1 || size > 10)) return -1;
        return run * 10 + (symbol != 0) + (is_special ? 0 : (run == 15) + size - 1);
    }

    static const std::vector<int>& zigzag() {
        static const std::vector<int> order = [] {
            std::vector<int> order;
            for (int sum = 0; sum < 15; sum++)
                for (int step = 0; step <= sum; step++) {
                    const int y = sum % 2 ? step : sum - step, x = sum - y;
                    if (x < 8 && y < 8) order.push_back(y * 8 + x);
                }
            return order;
        }();
        return order;
    }

    void put(uint32_t value, int bits) {
        while (bits--) {
            held = uint8_t(held << 1 | (value >> bits & 1));
            if (++count < 8) continue;
            out.push_back(held);
            if (held == 0xFF) out.push_back(0);
            count = 0;
        }
    }

    static int size_of(int value) {
        int size = 0;
        for (value = std::abs(value); value; value >>= 1) size++;
        return size;
    }

    void code(const Plane& plane, int left, int top, int& previous) {
        float rows[64], block[64];
        for (int y = 0; y < 8; y++)
            for (int u = 0; u < 8; u++) {
                float sum = 0;
                for (int x = 0; x < 8; x++) sum += (plane.at(left + x, top + y) - 128) * cosines[u * 8 + x];
                rows[y * 8 + u] = sum;
            }
        for (int v = 0; v < 8; v++)
            for (int u = 0; u < 8; u++) {
                float sum = 0;
                for (int y = 0; y < 8; y++) sum += rows[y * 8 + u] * cosines[v * 8 + y];
                block[v * 8 + u] = sum / 4 * (u ? 1 : float(M_SQRT1_2)) * (v ? 1 : float(M_SQRT1_2));
            }
        int run = 0;
        for (int place = 0; place < 64; place++) {
            const int at = zigzag()[size_t(place)];
            int value = std::clamp(int(std::lround(block[at] / float(quant[at]))), -1023, 1023);
            if (place == 0) {
                std::swap(value, previous);
                value = previous - value;
            }
            const int size = size_of(value);
            if (place && !value) {
                run++;
                continue;
            }
            for (; run >= 16; run -= 16) put(uint32_t(run_word(0xF0)), 8);
            if (place) put(uint32_t(run_word(run << 4 | size)), 8);
            else put(uint32_t(size), 4);
            put(uint32_t(value < 0 ? value - 1 : value), size);
            run = 0;
        }
        if (run) put(uint32_t(run_word(0)), 8);
    }

    std::vector<Plane> planes;
    int quant[64];
    float cosines[64];
    uint8_t held = 0;
    int count = 0;
};

}  // namespace jpeg_writer
