// Draws one picture with Danqing as a library: embed PROMPT OUT.png [MODEL]
#include <danqing/engine.h>

#include <cstdio>
#include <fstream>

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: embed PROMPT OUT.png [MODEL]\n"), 2;
  const auto fail = [](const danqing::Error& e) {
    return std::fprintf(stderr, "%s\n", e.message.c_str()), static_cast<int>(e.code);
  };

  auto model = argc > 3 ? danqing::Result<std::filesystem::path>(argv[3]) : danqing::default_model();
  if (!model) return fail(model.error());
  auto engine = danqing::Engine::open({.paths = {.model = *model}});
  if (!engine) return fail(engine.error());

  danqing::GenerateRequest request;
  request.prompts = {argv[1]};
  request.seeds = {42};
  auto result = (*engine)->generate(request, {.on_progress = [](const danqing::ProgressEvent& e) {
                                      if (e.stage == danqing::Stage::denoise)
                                        std::printf("step %d of %d\n", e.step, e.steps);
                                    }});
  if (!result) return fail(result.error());

  const danqing::GeneratedImage& picture = result->images[0];
  auto png = danqing::encode_image(picture.image, danqing::ImageFormat::png, picture.metadata);
  if (!png) return fail(png.error());
  std::ofstream(argv[2], std::ios::binary) << *png;
  return 0;
}
