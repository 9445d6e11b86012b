"""The APIs that other programs speak: OpenAI's images (with the openai package where it is there) and A1111's."""
from harness import *

try:
    import openai
except ImportError:
    openai = None


class OpenAi(ServerTest):
    def generate(self, **body):
        return self.server.post("/v1/images/generations", {"prompt": "a red apple", "size": "64x64", "steps": 2, **body})

    def test_answer_has_openais_form(self):
        r = self.generate(n=2, seed=5, quality="high", user="me", colour="red")
        self.assertEqual(r.status, 200, r.body)
        j = r.json()
        self.assertEqual((j["output_format"], j["size"], j["background"], len(j["data"])), ("png", "64x64", "opaque", 2))
        self.assertTrue(is_png(base64.b64decode(j["data"][0]["b64_json"]), 64))
        self.assertEqual(set(j["usage"]), {"total_tokens", "input_tokens", "output_tokens", "input_tokens_details"})
        self.assertIn("unknown field 'colour' was ignored", j["warnings"])
        self.assertTrue(any("quality" in w for w in j["warnings"]))

    def test_formats_and_addresses(self):
        j = self.generate(output_format="jpeg", output_compression=50, response_format="url").json()
        self.assertTrue(j["data"][0]["url"].startswith(self.server.url + "/v1/jobs/"))
        self.assertEqual(self.server.get(j["data"][0]["url"][len(self.server.url):]).body[:2], b"\xff\xd8")
        self.assertEqual(base64.b64decode(self.generate(output_format="webp").json()["data"][0]["b64_json"])[:4], b"RIFF")

    def test_impossible_things_are_refused_in_its_form(self):
        for body, param in (({"n": 11}, "n"), ({"size": "7x7"}, None), ({"background": "transparent"}, "background"),
                            ({"partial_images": 4}, "partial_images"), ({"output_compression": 101}, "output_compression"),
                            ({"prompt": None}, "prompt"), ({"style": "odd"}, "style"), ({"stream": True, "response_format": "url"}, "response_format")):
            r = self.generate(**body)
            self.assertEqual(r.status, 400, (body, r.body))
            error = r.json()["error"]
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertEqual(set(error), {"message", "type", "param", "code"})
            if param:
                self.assertEqual(error["param"], param)
        self.assertEqual(self.generate(model="gpt-image-1").status, 404)
        r = self.server.post("/v1/images/variations", {})
        self.assertIn("not available for this model", r.json()["error"]["message"])

    def test_streams_partial_images(self):
        events = list(self.server.events("/v1/images/generations", "POST",
                                         {"prompt": "a red apple", "size": "64x64", "steps": 8, "stream": True, "partial_images": 3, "seed": 1}))
        kinds = [e for e, _ in events]
        self.assertEqual(kinds, ["image_generation.partial_image"] * 3 + ["image_generation.completed"])
        self.assertEqual([d["partial_image_index"] for _, d in events[:3]], [0, 1, 2])
        pictures = [base64.b64decode(d["b64_json"]) for _, d in events]
        self.assertTrue(all(is_png(p, 64) for p in pictures))
        self.assertEqual(len(set(pictures)), 4)
        plain = self.generate(steps=8, seed=1).json()["data"][0]["b64_json"]
        self.assertEqual(events[-1][1]["b64_json"], plain)  # watching does not change the picture
        self.assertEqual(events[-1][1]["type"], "image_generation.completed")

    def test_models(self):
        m = self.server.get("/v1/models").json()["data"][0]
        self.assertEqual((m["id"], m["object"], m["loaded"]), ("danqing-mini", "model", True))
        self.assertEqual(self.server.get("/v1/models/danqing-mini").json()["id"], "danqing-mini")
        self.assertEqual(self.server.get("/v1/models/none").status, 404)

    @unittest.skipUnless(openai, "skipped: the openai package is not installed (tools/setup_tests.sh)")
    def test_the_openai_package(self):
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.assertEqual([m.id for m in client.models.list()], ["danqing-mini"])
        r = client.images.generate(prompt="a red apple", size="64x64", n=2, extra_body={"steps": 2, "seed": 9})
        self.assertTrue(is_png(base64.b64decode(r.data[1].b64_json), 64))
        stream = client.images.generate(prompt="a red apple", size="64x64", stream=True, partial_images=2, extra_body={"steps": 6})
        types = [event.type for event in stream]
        self.assertEqual(types, ["image_generation.partial_image"] * 2 + ["image_generation.completed"])
        with self.assertRaises(openai.BadRequestError):
            client.images.generate(prompt="x", background="transparent")
        with self.assertRaises(openai.NotFoundError):
            client.images.generate(prompt="x", model="dall-e-3")


class A1111(ServerTest):
    BASE = "/sdapi/v1/"

    def test_what_open_webui_does(self):
        self.assertEqual(self.server.get(self.BASE + "options").json()["sd_model_checkpoint"], "danqing-mini")
        models = self.server.get(self.BASE + "sd-models").json()
        self.assertEqual(models[0]["title"], "danqing-mini")
        self.assertEqual(self.server.post(self.BASE + "options", {"sd_model_checkpoint": models[0]["title"]}).status, 200)
        r = self.server.post(self.BASE + "txt2img", {"prompt": "a red apple", "batch_size": 2, "width": 60, "height": 70, "steps": 2,
                                                     "negative_prompt": "snow", "cfg_scale": 3, "seed": 11, "sampler_name": "Euler a"})
        self.assertEqual(r.status, 200, r.body)
        j = r.json()
        self.assertEqual(len(j["images"]), 2)
        self.assertTrue(is_png(base64.b64decode(j["images"][0]), 64))  # 60 is not possible: the nearest that is
        info = json.loads(j["info"])
        self.assertEqual((info["seed"], info["all_seeds"], info["steps"], info["width"]), (11, [11, 12], 2, 64))
        self.assertIn("Steps: 2, Sampler: Euler, CFG scale: 3, Seed: 11, Size: 64x64", info["infotexts"][0])
        self.assertEqual(j["parameters"]["negative_prompt"], "snow")
        read = self.server.post(self.BASE + "png-info", {"image": "data:image/png;base64," + j["images"][0]}).json()
        self.assertEqual(read["info"], info["infotexts"][0])

    def test_what_silly_tavern_does(self):
        for name in ("samplers", "schedulers", "upscalers", "latent-upscale-modes", "sd-vae", "loras"):
            self.assertIsInstance(self.server.get(self.BASE + name).json(), list, name)
        self.assertEqual(self.server.get(self.BASE + "samplers").json()[0]["name"], "Euler")
        idle = self.server.get(self.BASE + "progress").json()
        self.assertEqual((idle["progress"], idle["state"]["job_count"], idle["current_image"]), (0, 0, None))
        answers = []
        t = threading.Thread(target=lambda: answers.append(self.server.post(self.BASE + "txt2img", {"prompt": "x", "steps": 150, "width": 128, "height": 128})))
        t.start()
        busy = until(lambda: (p := self.server.get(self.BASE + "progress").json())["progress"] > 0 and p)
        self.assertEqual(busy["state"]["job_count"], 1)
        self.assertEqual(self.server.post(self.BASE + "interrupt", {}).status, 200)
        t.join(TIMEOUT)
        self.assertEqual((answers[0].status, answers[0].json()["images"]), (200, []))
        self.assertIn("ram", self.server.get(self.BASE + "memory").json())

    def test_errors_have_its_form(self):
        r = self.server.get(self.BASE + "nothing")
        self.assertEqual((r.status, set(r.json())), (404, {"error", "detail", "body", "errors"}))
        self.assertEqual(self.server.post(self.BASE + "txt2img", {"steps": "many"}).status, 422)
        r = self.server.post(self.BASE + "img2img", {})
        self.assertEqual(r.status, 422)
        self.assertIn("init_images expected one picture", r.json()["detail"])


if __name__ == "__main__":
    main()
