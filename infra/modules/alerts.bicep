// The alerts of alerts.json use what the service itself measures. The others use what the platform
// knows, also when nothing of the service arrives.

@description('What the names of the alerts start with.')
param name string

@description('Whether they are on.')
param enabled bool

@description('The Application Insights component.')
param applicationInsightsId string

@description('The Log Analytics workspace.')
param workspaceId string

@description('Names of the sites.')
param siteNames array

@description('Names of the storage accounts, of the links and of the Functions host.')
param storageNames array

@description('Name of Front Door, if there are two regions behind it. Empty: there are not.')
param frontDoorName string

@description('Who is told. Empty: nobody.')
param actionGroupId string

@description('The Azure region.')
param location string

@description('Tags of the alerts.')
param tags object

var rules = loadJsonContent('../alerts.json')
var actions = empty(actionGroupId)
  ? []
  : [
      {
        actionGroupId: actionGroupId
      }
    ]

resource alerts 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [
  for rule in rules: {
    name: '${name}-${rule.name}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: rule.displayName
      description: rule.description
      severity: rule.severity
      enabled: enabled
      // A component that was just made may not know its tables yet. Then Azure would refuse a query
      // of them. Our tests check the queries instead.
      skipQueryValidation: true
      scopes: [
        applicationInsightsId
      ]
      evaluationFrequency: rule.evaluationFrequency
      windowSize: rule.windowSize
      overrideQueryTimeRange: empty(rule.overrideQueryTimeRange) ? null : rule.overrideQueryTimeRange
      autoMitigate: rule.autoMitigate
      criteria: {
        allOf: [
          {
            query: rule.query
            timeAggregation: rule.timeAggregation
            metricMeasureColumn: rule.metricMeasureColumn
            operator: rule.operator
            threshold: rule.threshold
            failingPeriods: {
              numberOfEvaluationPeriods: rule.failingPeriods.numberOfEvaluationPeriods
              minFailingPeriodsToAlert: rule.failingPeriods.minFailingPeriodsToAlert
            }
          }
        ]
      }
      actions: {
        actionGroups: empty(actionGroupId)
          ? []
          : [
              actionGroupId
            ]
      }
    }
  }
]

// After the daily cap is reached, the alerts above see nothing until the next day. What the
// workspace logs about itself still arrives.
resource dailyCap 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: '${name}-daily-cap'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'tiney: no more telemetry today'
    description: 'The daily cap of the workspace is used up, and most alerts are blind until it starts anew. What to do: docs/operations.md#no-more-telemetry-today'
    severity: 2
    enabled: enabled
    skipQueryValidation: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT15M'
    windowSize: 'PT15M'
    autoMitigate: false
    criteria: {
      allOf: [
        {
          query: '_LogOperation | where Category =~ "Ingestion" | where Detail contains "OverQuota"'
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: empty(actionGroupId)
        ? []
        : [
            actionGroupId
          ]
    }
  }
}

// The platform counts these errors. Neither the daily cap nor a host without telemetry can hide
// them.
resource serverErrors 'Microsoft.Insights/metricAlerts@2018-03-01' = [
  for siteName in siteNames: {
    name: '${siteName}-server-errors'
    location: 'global'
    tags: tags
    properties: {
      description: 'More than 50 responses in 15 minutes were a 5xx, as the platform counts them. What to do: docs/operations.md#redirects-are-failing'
      severity: 1
      enabled: enabled
      autoMitigate: true
      scopes: [
        resourceId('Microsoft.Web/sites', siteName)
      ]
      evaluationFrequency: 'PT5M'
      windowSize: 'PT15M'
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            criterionType: 'StaticThresholdCriterion'
            name: 'server-errors'
            metricNamespace: 'Microsoft.Web/sites'
            metricName: 'Http5xx'
            timeAggregation: 'Total'
            operator: 'GreaterThan'
            threshold: 50
            skipMetricValidation: true
          }
        ]
      }
      actions: actions
    }
  }
]

// An account slows its clients down by these responses.
resource throttling 'Microsoft.Insights/metricAlerts@2018-03-01' = [
  for storageName in storageNames: {
    name: '${storageName}-throttling'
    location: 'global'
    tags: tags
    properties: {
      description: 'The storage account refused more than 50 calls in 15 minutes because it was too busy. What to do: docs/operations.md#storage-is-throttled'
      severity: 2
      enabled: enabled
      autoMitigate: true
      scopes: [
        resourceId('Microsoft.Storage/storageAccounts', storageName)
      ]
      evaluationFrequency: 'PT5M'
      windowSize: 'PT15M'
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            criterionType: 'StaticThresholdCriterion'
            name: 'throttled'
            metricNamespace: 'Microsoft.Storage/storageAccounts'
            metricName: 'Transactions'
            dimensions: [
              {
                name: 'ResponseType'
                operator: 'Include'
                values: [
                  'ServerBusyError'
                  'ClientThrottlingError'
                  'ClientAccountBandwidthThrottlingError'
                  'ClientAccountRequestThrottlingError'
                  'ServerTimeoutError'
                ]
              }
            ]
            timeAggregation: 'Total'
            operator: 'GreaterThan'
            threshold: 50
            skipMetricValidation: true
          }
        ]
      }
      actions: actions
    }
  }
]

// Front Door probes the site of each region.
resource regions 'Microsoft.Insights/metricAlerts@2018-03-01' = if (!empty(frontDoorName)) {
  name: '${name}-region-down'
  location: 'global'
  tags: tags
  properties: {
    description: 'Front Door found the site of a region ill in more than half of its probes of 15 minutes. What to do: docs/operations.md#a-region-is-down'
    severity: 1
    enabled: enabled
    autoMitigate: true
    scopes: [
      resourceId('Microsoft.Cdn/profiles', frontDoorName)
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'well'
          metricNamespace: 'Microsoft.Cdn/profiles'
          metricName: 'OriginHealthPercentage'
          dimensions: [
            {
              name: 'Origin'
              operator: 'Include'
              values: [
                '*'
              ]
            }
          ]
          timeAggregation: 'Average'
          operator: 'LessThan'
          threshold: 50
          skipMetricValidation: true
        }
      ]
    }
    actions: actions
  }
}

// The platform says that a resource of the group is ill, which is not the service's fault.
resource health 'Microsoft.Insights/activityLogAlerts@2020-10-01' = {
  name: '${name}-resource-health'
  location: 'global'
  tags: tags
  properties: {
    description: 'Azure says that a resource of the group is unavailable or degraded. What to do: docs/operations.md#azure-says-that-a-resource-is-ill'
    enabled: enabled
    scopes: [
      resourceGroup().id
    ]
    condition: {
      allOf: [
        {
          field: 'category'
          equals: 'ResourceHealth'
        }
        {
          anyOf: [
            {
              field: 'properties.currentHealthStatus'
              equals: 'Unavailable'
            }
            {
              field: 'properties.currentHealthStatus'
              equals: 'Degraded'
            }
          ]
        }
      ]
    }
    actions: {
      actionGroups: actions
    }
  }
}
