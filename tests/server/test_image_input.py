"""Pictures to start from, by every API: native, OpenAI's edits (JSON and forms) and A1111's img2img."""
import io

from harness import *

try:
    import openai
except ImportError:
    openai = None


class ImageInput(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        job = cls.server.finished(cls.server.submit(prompt="a red apple", width=64, height=96, steps=2, seed=1))
        cls.picture = cls.server.get(job["images"][0]["url"]).body
        cls.encoded = base64.b64encode(cls.picture).decode()

    def from_picture(self, **settings):
        """A job without a size of its own."""
        r = self.server.post("/v1/jobs", {"prompt": "a sailboat", "steps": 5, "seed": 2, "init_image": self.encoded, "strength": 0.6, **settings})
        self.assertEqual(r.status, 202, r.body)
        return r.json(), self.server.finished(r.json()["id"])

    def form(self, files, fields, boundary="XBOUNDARYX"):
        body = b""
        for name, value in fields.items():
            body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, data in files:
            body += (f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="a.png"\r\n'
                     f"Content-Type: image/png\r\n\r\n").encode() + data + b"\r\n"
        body += f"--{boundary}--\r\n".encode()
        connection = self.server.connection()
        connection.request("POST", "/v1/images/edits", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
        r = connection.getresponse()
        return Answer(r.status, dict(r.getheaders()), r.read())

    def test_a_job_from_a_picture(self):
        submitted, job = self.from_picture()
        self.assertEqual(job["status"], "done", job)
        self.assertEqual((job["images"][0]["width"], job["images"][0]["height"]), (64, 96))  # the picture's own
        settings = job["images"][0]["settings"]
        self.assertEqual((settings["strength"], settings["init_image"], settings["num_inference_steps"]),
                         (0.6, {"width": 64, "height": 96}, 5))
        self.assertNotIn(self.encoded, json.dumps(job))  # it is not sent back with every look at the job
        self.assertEqual(submitted["request"]["init_image"], {"bytes": len(self.picture)})
        same = self.from_picture()[1]
        self.assertEqual(self.server.get(same["images"][0]["url"]).body, self.server.get(job["images"][0]["url"]).body)
        other = self.server.finished(self.server.submit(prompt="a sailboat", steps=5, seed=2, width=64, height=96))
        self.assertNotEqual(pixels(self.server.get(other["images"][0]["url"]).body), pixels(self.server.get(job["images"][0]["url"]).body))

    def test_wrong_pictures_are_refused(self):
        for body, status, code in (({"init_image": "%%%"}, 422, "invalid_value"), ({"init_image": ""}, 422, "invalid_value"),
                                   ({"init_image": base64.b64encode(b"no picture").decode()}, 422, "not_a_picture"),
                                   ({"init_image": self.encoded[:400]}, 422, "not_a_picture"), ({"init_image": 3}, 422, "invalid_value"),
                                   ({"init_image": self.encoded, "strength": 0}, 422, "invalid_value"),
                                   ({"init_image": self.encoded, "strength": 1.5}, 422, "invalid_value"),
                                   ({"strength": 0.5}, 422, "invalid_value")):
            r = self.server.post("/v1/jobs", {"prompt": "x", "steps": 2, **body})
            self.assertEqual((r.status, r.json()["error"]["code"]), (status, code), (list(body), r.body))

    def test_openais_edits_as_form_and_json(self):
        fields = {"prompt": "42", "steps": "3", "seed": "5", "n": "1", "size": "64x64", "input_fidelity": "high"}
        r = self.form([("image", self.picture)], fields)
        self.assertEqual(r.status, 200, r.body)
        first = base64.b64decode(r.json()["data"][0]["b64_json"])
        self.assertTrue(is_png(first, 64))
        r = self.form([("image[]", self.picture)], fields)
        self.assertEqual(base64.b64decode(r.json()["data"][0]["b64_json"]), first)
        r = self.server.post("/v1/images/edits", {"prompt": "42", "steps": 3, "seed": 5, "size": "64x64", "strength": 0.4, "image": self.encoded})
        self.assertEqual(base64.b64decode(r.json()["data"][0]["b64_json"]), first)

    def test_edits_stream_their_own_events(self):
        events = list(self.server.events("/v1/images/edits", "POST", {"prompt": "x", "steps": 6, "stream": True, "partial_images": 1,
                                                                      "image": self.encoded, "strength": 1}))
        self.assertEqual([(kind, data["type"]) for kind, data in events],
                         [("image_edit.partial_image",) * 2, ("image_edit.completed",) * 2])

    def test_forms_that_are_none(self):
        fields = {"prompt": "x", "steps": "2"}
        for files, said in (([], "image"), ([("image", b"text")], None), ([("image", self.picture), ("image", self.picture)], "several"),
                            ([("image", self.picture), ("mask", self.picture)], "masks are not available")):
            r = self.form(files, fields)
            self.assertEqual(r.status, 400, r.body)
            if said:
                self.assertIn(said, r.json()["error"]["message"])
        for body in (b"", b"--XX", b"--XX--", b"--XX\r\n\r\n", b"--XX\r\nContent-Disposition: form-data\r\n\r\nx\r\n--XX--\r\n", b"\xff" * 100,
                     b"--XX\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nno end", b"--XX\r\n" * 5000):
            connection = self.server.connection()
            connection.request("POST", "/v1/images/edits", body, {"Content-Type": "multipart/form-data; boundary=XX"})
            r = connection.getresponse()
            self.assertEqual(r.status, 400, body[:60])
            r.read()

    def test_img2img(self):
        r = self.server.post("/sdapi/v1/img2img", {"prompt": "a boat", "steps": 4, "seed": 3, "denoising_strength": 0.5, "init_images": [self.encoded]})
        self.assertEqual(r.status, 200, r.body)
        answer = r.json()
        self.assertNotIn("init_images", answer["parameters"])
        info = json.loads(answer["info"])
        self.assertEqual((info["denoising_strength"], info["width"], info["height"]), (0.5, 64, 96))
        self.assertIn("Denoising strength: 0.5", info["infotexts"][0])
        for bad in ({}, {"init_images": []}, {"init_images": ["%"]}, {"init_images": [self.encoded, self.encoded]},
                    {"init_images": [self.encoded], "denoising_strength": 0}, {"init_images": [self.encoded], "mask": self.encoded}):
            self.assertEqual(self.server.post("/sdapi/v1/img2img", {"prompt": "x", "steps": 2, **bad}).status, 422, list(bad))

    @unittest.skipUnless(openai, "skipped: the openai package is not installed (tools/setup_tests.sh)")
    def test_the_openai_package(self):
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        r = client.images.edit(image=io.BytesIO(self.picture), prompt="a boat", size="64x64", extra_body={"steps": 2, "seed": 9})
        self.assertTrue(is_png(base64.b64decode(r.data[0].b64_json), 64))
        with self.assertRaises(openai.BadRequestError):
            client.images.edit(image=[io.BytesIO(self.picture), io.BytesIO(self.picture)], prompt="a boat")


if __name__ == "__main__":
    main()
