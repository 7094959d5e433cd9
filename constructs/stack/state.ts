import {
  GcsBackend,
  HttpBackend,
  LocalBackend,
  S3Backend,
  type TerraformStack,
} from "../terraform/cdktf.ts";

/** Backend of the Terraform state. Credentials come from the environment of the process. */
export type StateBackend =
  | {
      readonly backend: "local";
      /**
       * State file, relative to the project.
       *
       * @default `terraform.<environment>.tfstate`
       */
      readonly path?: string;
    }
  | {
      readonly backend: "s3";
      readonly bucket: string;
      /** @default `clipstack/<environment>.tfstate` */
      readonly key?: string;
      readonly region: string;
      /**
       * Endpoint of S3-compatible storage.
       *
       * @default - AWS
       */
      readonly endpoint?: string;
    }
  | {
      readonly backend: "gcs";
      readonly bucket: string;
      /** @default `clipstack/<environment>` */
      readonly prefix?: string;
    }
  | {
      readonly backend: "http";
      readonly address: string;
      /**
       * URL that locks the state; requires `unlockAddress`.
       *
       * @default - no locking: concurrent deployments are not prevented
       */
      readonly lockAddress?: string;
      /**
       * URL that unlocks the state; requires `lockAddress`.
       *
       * @default - no locking
       */
      readonly unlockAddress?: string;
    };

/** Oldest Terraform with `terraform_data`; every OpenTofu has it. */
const minimumTerraform = ">= 1.4.0";

/**
 * Configures the state backend of `stack`. Paths are relative to `cdktf.out/stacks/<name>`, where Terraform runs, because
 * cdktf's default backend contains the absolute path of the synthesizing machine.
 */
export function keepState(stack: TerraformStack, state: StateBackend): void {
  const environment = stack.node.id;
  stack.addOverride("terraform.required_version", minimumTerraform);
  switch (state.backend) {
    case "local": {
      const path = state.path ?? `terraform.${environment}.tfstate`;
      new LocalBackend(stack, { path: `../../../${path}` });
      break;
    }
    case "s3": {
      const { bucket, key = `clipstack/${environment}.tfstate`, region, endpoint } = state;
      new S3Backend(stack, {
        bucket,
        key,
        region,
        encrypt: true,
        ...(endpoint !== undefined && {
          endpoints: { s3: endpoint },
          usePathStyle: true,
          skipCredentialsValidation: true,
          skipRegionValidation: true,
          skipRequestingAccountId: true,
          skipMetadataApiCheck: true,
          skipS3Checksum: true,
        }),
      });
      stack.addOverride("terraform.backend.s3.use_lockfile", true);
      break;
    }
    case "gcs": {
      const { bucket, prefix = `clipstack/${environment}` } = state;
      new GcsBackend(stack, { bucket, prefix });
      break;
    }
    case "http": {
      const { address, lockAddress, unlockAddress } = state;
      new HttpBackend(stack, { address, lockAddress, unlockAddress });
      break;
    }
  }
}
