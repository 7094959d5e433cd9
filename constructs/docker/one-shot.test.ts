import { expect, test } from "vitest";
import { hostIn, synth } from "../test-synth.ts";
import { OneShot, type OneShotProps } from "./one-shot.ts";

function synthOneShot(props: Partial<OneShotProps> = {}, image = "embed:1") {
  const result = synth((stack) => {
    const host = hostIn(stack);
    new OneShot(stack, "task", {
      host,
      image: host.image("embed-cpu", { source: "pull", name: image }),
      service: "task",
      run: { command: ["work"], networkMode: "none" },
      versions: [],
      ...props,
    });
  });
  return { ...result, container: result.at("test/task/container") };
}

test("runs once, without privileges", () => {
  expect(synthOneShot().container).toMatchObject({
    must_run: false,
    attach: true,
    logs: true,
    restart: "no",
    timeouts: { create: "2h" },
    capabilities: { drop: ["ALL"] },
    security_opts: ["no-new-privileges:true"],
  });
});

test("runs before any service changes", () => {
  const { at, address, json } = synthOneShot();
  const prepared = at("test/host/prepared");
  expect(prepared.depends_on).toContain(address("test/task/container"));
  expect(prepared.lifecycle).toEqual({ create_before_destroy: true });
  expect(json.provider.docker[1].host).toContain(address("test/host/prepared"));
  // managed by the default provider, because the other one depends on it
  expect(synthOneShot().container).not.toHaveProperty("provider");
});

test("prints its logs and fails the deployment with its exit code", () => {
  const [provisioner] = synthOneShot().container.provisioner;
  expect(provisioner["local-exec"]).toMatchObject({
    command: 'printf "%s" "$LOGS"; exit "$EXIT_CODE"',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: expressions of Terraform
    environment: { EXIT_CODE: "${self.exit_code}", LOGS: "${self.container_logs}" },
  });
});

test("has a new container only for another command, image or version", () => {
  const key = (...args: Parameters<typeof synthOneShot>) =>
    synthOneShot(...args).container.for_each;
  const keys = [
    key(),
    key({ run: { command: ["other"], networkMode: "none" } }),
    key({}, "embed:2"),
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
    key({ versions: ["${local.x}"] }),
  ];
  expect(new Set(keys).size).toBe(keys.length);
  expect(key()).toBe(keys[0]);
});

test("has a random name, which does not collide with a failed container and does not change", () => {
  const { name, lifecycle } = synthOneShot().container;
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
  expect(name).toBe("test-task-${substr(uuid(), 0, 8)}");
  expect(lifecycle).toEqual({ create_before_destroy: true, ignore_changes: ["name"] });
});
