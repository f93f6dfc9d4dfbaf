// FC1: a function app on a Flex Consumption plan, on Linux. Its package is in a blob container.

@description('Name of the function app.')
param name string

@description('Name of the plan.')
param planName string

@description('Name of the storage account of the Functions host.')
param hostStorageName string

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

@description('More tags of the function app alone.')
param siteTags object

@description('Resource ID of the identity.')
param identityId string

@description('Client ID of the identity.')
param clientId string

@description('The handler\'s settings.')
@secure()
param settings object

@description('BaseUrl, or empty.')
param baseUrl string

@description('Who may call. Empty: all.')
param accessRestrictions array

@description('What happens to all others: Allow or Deny.')
param accessOtherwise string

@description('The Application Insights component.')
param applicationInsightsName string

@description('Memory of an instance, in MB.')
param instanceMemoryMB int

@description('How many instances there may be.')
param maximumInstanceCount int

@description('How many requests an instance gets at once.')
param perInstanceConcurrency int

@description('How a new package or setting reaches the instances: Recreate or RollingUpdate.')
param siteUpdateStrategy string

@description('Whether the instances are spread over zones, for which the host\'s storage has to be.')
param zoneRedundant bool

@description('Name of the container with the package, in the host\'s storage.')
param containerName string

@description('Resource ID of the subnet that the site is in. Empty: none.')
param subnetId string

var deploymentContainer = 'https://${hostStorageName}.blob.${environment().suffixes.storage}/${containerName}'

resource servicePlan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

// There is no health check: on function apps, it needs a Premium or Dedicated plan.
resource site 'Microsoft.Web/sites@2025-03-01' = {
  name: name
  location: location
  tags: union(tags, siteTags)
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: servicePlan.id
    httpsOnly: true
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    clientAffinityEnabled: false
    // On this plan, a certificate of a custom domain needs this property from the site's creation
    // on. The platform knows the property, but the type's description does not have it.
    #disable-next-line BCP037
    siteScopedCertificatesEnabled: true
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ipSecurityRestrictions: accessRestrictions
      ipSecurityRestrictionsDefaultAction: accessOtherwise
      scmIpSecurityRestrictionsUseMain: false
    }
    functionAppConfig: {
      runtime: {
        name: 'custom'
        version: '1.0'
      }
      deployment: {
        storage: {
          type: 'blobContainer'
          value: deploymentContainer
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      // The type's description may not have this property yet.
      #disable-next-line BCP037
      siteUpdateStrategy: siteUpdateStrategy == 'Recreate'
        ? null
        : {
            type: siteUpdateStrategy
          }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        triggers: {
          http: {
            perInstanceConcurrency: perInstanceConcurrency
          }
        }
      }
    }
  }
}

module siteSettings 'site-settings.bicep' = {
  name: '${name}-settings'
  params: {
    siteName: site.name
    // functionAppConfig has the runtime, the version and the package. This plan refuses the
    // settings that other plans use for them.
    //
    // Leave __accountName as it is. With __blobServiceUri and its like in its place, hosts on this
    // plan sometimes start without a client of their storage (Azure/azure-functions-host#11782,
    // #11787).
    settings: union(settings, {
      AzureWebJobsStorage__accountName: hostStorageName
      AzureWebJobsStorage__credential: 'managedidentity'
      AzureWebJobsStorage__clientId: clientId
    })
    baseUrl: baseUrl
    applicationInsightsName: applicationInsightsName
  }
}

@description('Resource ID of the function app.')
output siteId string = site.id

@description('The host name that Azure gave the site.')
output defaultHostName string = siteSettings.outputs.defaultHostName

@description('What the TXT record asuid.DOMAIN of a domain has to have.')
output domainVerification string = siteSettings.outputs.domainVerification

@description('BaseUrl, as it was set.')
output baseUrl string = siteSettings.outputs.baseUrl

@description('Address of the container with the package.')
output deploymentContainer string = deploymentContainer
